"""What engines in stages have in common: the last stage samples, and the others are told."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from jetway.runtime.errors import EngineFailed

from .base import Launch, Sampled, StepBatch
from .rank_messages import receive, send
from .ranks import Channel, Ranks

Tie = Callable[[Launch], Launch]  # from a launch of this rank alone to one that knows what was sampled


def refuse_pending(batch: StepBatch) -> None:
    """Raises EngineFailed for a row whose token the last stage has yet to sample."""
    if len(batch.pending_rows):
        raise EngineFailed("the first stage cannot compute a token that the last one has not sampled yet")


def tie_of(ranks: Ranks | None, first_of_last_stage: int) -> Tie:
    """By the rank's place. All ranks of the last stage sample alike; its first one tells the earlier stages."""
    if ranks is None or first_of_last_stage == 0:
        return lambda launch: launch
    if ranks.rank < first_of_last_stage:
        return lambda launch: SampledElsewhere(launch, ranks, first_of_last_stage)
    if ranks.rank == first_of_last_stage:
        return Teller(ranks, range(first_of_last_stage)).tell
    return lambda launch: launch


@dataclass(frozen=True, slots=True)
class InThread:
    """A launch that a thread does."""

    sampled: "Future[Sampled]"

    def wait(self) -> Sampled:
        return self.sampled.result()


@dataclass(frozen=True, slots=True)
class SampledElsewhere:
    """A launch of an earlier stage."""

    launch: Launch
    ranks: Ranks
    source: int

    def wait(self) -> Sampled:
        own = self.launch.wait()  # this stage's part, whose inputs are then free
        sampled = receive(self.ranks, self.source, Channel.SAMPLED)
        assert isinstance(sampled, Sampled)
        return replace(sampled, copy_wait_s=own.copy_wait_s)


class Teller:
    """Tells the earlier stages of every step as soon as it is done: nobody may wait for it here until they have heard."""

    def __init__(self, ranks: Ranks, others: range) -> None:
        self._ranks = ranks
        self._others = others
        self._thread = ThreadPoolExecutor(1, "sampled")

    def tell(self, launch: Launch) -> Launch:
        return InThread(self._thread.submit(self._wait, launch))

    def _wait(self, launch: Launch) -> Sampled:
        """Raises EngineFailed, of which the others are told too."""
        try:
            sampled = launch.wait()
        except EngineFailed as failure:
            self._send(failure)
            raise
        self._send(sampled)
        return sampled

    def _send(self, message: Sampled | EngineFailed) -> None:
        for rank in self._others:
            send(message, self._ranks, rank, Channel.SAMPLED)
