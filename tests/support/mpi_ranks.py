"""One of the ranks that mpirun starts for tests/runtime/executor/test_mpi_ranks.py: `mpi_ranks.py SIZE SCENE`.

What it sees it prints; the test compares.
"""

import os
import signal
import sys
import threading
from hashlib import sha256

from jetway.runtime.errors import JetwayError
from jetway.runtime.executor.mpi_ranks import MpiRanks
from jetway.runtime.executor.ranks import Channel, Ranks

LARGE = bytes(range(256)) * 40_000  # beyond what any MPI takes before somebody receives it
NUM_ROUNDS = 200


def main() -> int:
    size, scene = int(sys.argv[1]), sys.argv[2]
    try:
        ranks = MpiRanks.join(size)
    except JetwayError as error:
        say(error.message)
        return 2
    say(f"rank {ranks.rank} of {ranks.size}")
    SCENES[scene](ranks)
    ranks.leave()
    return 0


def say(line: str) -> None:
    """In one piece, or the ranks' lines mix."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def order(ranks: Ranks) -> None:
    """Rank 0 sends all before anybody receives, on two channels; the others receive one channel after the other."""
    if ranks.rank == 0:
        for to in range(1, ranks.size):
            for number in range(NUM_ROUNDS):
                ranks.send(f"plan {number} to {to}".encode(), to, Channel.PLANS)
                ranks.send(f"sampled {number} to {to}".encode(), to, Channel.SAMPLED)
        return
    for channel, name in ((Channel.SAMPLED, "sampled"), (Channel.PLANS, "plan")):
        received = [ranks.receive(0, channel) for _ in range(NUM_ROUNDS)]
        wanted = [f"{name} {number} to {ranks.rank}".encode() for number in range(NUM_ROUNDS)]
        say(f"{name}: {received == wanted}")


def ring(ranks: Ranks) -> None:
    """Large messages all around, each sent before the one to receive has come."""
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    message = bytes([ranks.rank]) + LARGE
    for _ in range(3):
        ranks.send(message, after, Channel.HIDDEN_STATES)
        received = ranks.receive(before, Channel.HIDDEN_STATES)
    say(f"from {received[0]}: {sha256(received[1:]).hexdigest()}")


def threads(ranks: Ranks) -> None:
    """Rank 0 sends plans in one thread and waits for what is sampled in another; the last rank answers each."""
    last = ranks.size - 1
    if ranks.rank == last:
        for _ in range(NUM_ROUNDS):
            ranks.send(ranks.receive(0, Channel.PLANS), 0, Channel.SAMPLED)
    elif ranks.rank == 0:
        answers: list[bytes] = []
        waiting = threading.Thread(
            target=lambda: answers.extend(ranks.receive(last, Channel.SAMPLED) for _ in range(NUM_ROUNDS))
        )
        waiting.start()
        for number in range(NUM_ROUNDS):
            ranks.send(str(number).encode(), last, Channel.PLANS)
        waiting.join()
        say(f"answers: {answers == [str(number).encode() for number in range(NUM_ROUNDS)]}")


def silent(ranks: Ranks) -> None:
    """Rank 0 sends, and leaves MPI alone until rank 1 says otherwise that all has come."""
    heard = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.set())
    if ranks.rank == 0:
        ranks.send(str(os.getpid()).encode(), 1, Channel.PLANS)
        ranks.send(LARGE, 1, Channel.PLANS)
        heard.wait()
    else:
        pid = int(ranks.receive(0, Channel.PLANS))
        say(f"received {sha256(ranks.receive(0, Channel.PLANS)).hexdigest()}")
        os.kill(pid, signal.SIGUSR1)


def empty(ranks: Ranks) -> None:
    """A message may be empty."""
    if ranks.rank == 0:
        ranks.send(b"", 1, Channel.PLANS)
    elif ranks.rank == 1:
        say(f"received {ranks.receive(0, Channel.PLANS)!r}")


def nobody(ranks: Ranks) -> None:
    """A send that MPI refuses is the engine's failure."""
    try:
        ranks.send(b"", ranks.size, Channel.PLANS)
    except JetwayError as error:
        say(f"{type(error).__name__}: {error.message.partition(':')[0]}")


SCENES = {"order": order, "ring": ring, "threads": threads, "silent": silent, "empty": empty, "nobody": nobody}

if __name__ == "__main__":
    sys.exit(main())
