"""A rank of an executor without work, started by mpirun: `rank.py executor BEHAVIOUR` and the supervisor's flags.

Rank 0 announces itself, beats, and ends all in order at SIGTERM; the others wait for it.

serve      as above
load       rank 0 announces nothing
fail       the same, and the others exit with status 1, once all have met
refuse     the same, and the others refuse the configuration
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.mpi_ranks import MpiRanks
from jetway.runtime.executor.ranks import Channel
from jetway.runtime.lifeline import Lifeline
from jetway.runtime.serve import join_ranks


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role")
    parser.add_argument("behaviour")
    parser.add_argument("--num-ranks", type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--lifeline", type=Path, required=True)
    args = parser.parse_args()
    lifeline = Lifeline(args.lifeline)
    lifeline.watch()
    ranks = join_ranks(args.num_ranks, lifeline)
    args.config.with_name(f"rank-{ranks.rank}-{args.epoch}").write_text(str(os.getpid()))
    if ranks.rank == 0:
        for rank in range(1, ranks.size):
            ranks.receive(rank, Channel.SAMPLED)
        lead(ranks, lifeline, args.behaviour)
    else:
        ranks.send(b"here", 0, Channel.SAMPLED)
        status = follow(ranks, lifeline, args.behaviour)
        if status != 0:
            return status
    ranks.leave()
    say(f"rank {ranks.rank} stopped")
    return 0


def lead(ranks: MpiRanks, lifeline: Lifeline, behaviour: str) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    if behaviour == "serve":
        lifeline.announce({"ranks": str(ranks.size)})
    while not told:
        lifeline.beat()
        time.sleep(0.005)
    for rank in range(1, ranks.size):
        ranks.send(b"stop", rank, Channel.PLANS)


def follow(ranks: MpiRanks, lifeline: Lifeline, behaviour: str) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "fail":
        return 1
    if behaviour == "refuse":
        lifeline.refuse(ConfigError("threads must be even"))
        return 2
    ranks.receive(0, Channel.PLANS)
    return 0


def say(line: str) -> None:
    """In one piece, or the ranks' lines mix."""
    os.write(sys.stderr.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
