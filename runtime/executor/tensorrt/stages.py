"""What the last stage of a pipeline samples, on its way to the other stages."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.base import Launch, Sampled
from jetway.runtime.executor.rank_messages import receive, send
from jetway.runtime.executor.ranks import Channel, Ranks
from jetway.runtime.executor.trt_rank import RankPart

Tie = Callable[[Launch], Launch]  # from a launch of this rank alone to one that knows what was sampled


def tie_of(part: RankPart, ranks: Ranks | None) -> Tie:
    """By its place in the pipeline. All ranks of the last stage sample alike; its first one tells the earlier stages."""
    if part.num_stages == 1 or ranks is None:
        return lambda launch: launch
    if not part.is_last_stage:
        return lambda launch: SampledElsewhere(launch, ranks, part.first_rank_of_last_stage)
    if part.rank == part.first_rank_of_last_stage:
        return Teller(ranks, range(part.rank)).tell
    return lambda launch: launch


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


@dataclass(frozen=True, slots=True)
class SampledHere:
    """A launch of the last stage, for which a thread waits already."""

    sampled: "Future[Sampled]"

    def wait(self) -> Sampled:
        return self.sampled.result()


class Teller:
    """Tells the earlier stages of every step as soon as it is done: nobody may wait for it here until they have heard."""

    def __init__(self, ranks: Ranks, others: range) -> None:
        self._ranks = ranks
        self._others = others
        self._thread = ThreadPoolExecutor(1, "sampled")

    def tell(self, launch: Launch) -> Launch:
        return SampledHere(self._thread.submit(self._wait, launch))

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
