"""A simulated engine of several stages: threads, through which every step and every copy goes in order."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from jetway.scheduler.plan import EngineDescription

from .base import Int32Array, Launch, Sampled, StepBatch
from .pipeline import refuse_pending
from .simulated import PLAIN, SimulatedBehaviour, SimulatedEngine, StepTimeModel


@dataclass(frozen=True, slots=True)
class Passing:
    """A step on its way through the stages; it fails with whatever failed there."""

    sampled: "Future[Sampled]"
    failure: "Future[Sampled]"

    def wait(self) -> Sampled:
        ended = wait((self.sampled, self.failure), return_when=FIRST_COMPLETED).done
        return (self.sampled if self.sampled in ended else self.failure).result()


class SimulatedPipeline(SimulatedEngine):
    """Each stage takes an even share of a step's time, and then the last one does all that a simulated engine does.

    `sleeps[i]` lets that time pass in stage i.
    """

    def __init__(
        self,
        description: EngineDescription,
        eos_token_ids: frozenset[int] = frozenset(),
        behaviour: SimulatedBehaviour = PLAIN,
        sleeps: Sequence[Callable[[float], None]] | None = None,
    ) -> None:
        super().__init__(description, eos_token_ids, replace(behaviour, step_time=StepTimeModel()))
        self.max_launches = description.num_stages
        self._step_time = behaviour.step_time
        self._sleeps = sleeps or [time.sleep] * description.num_stages
        self._failure: Future[Sampled] = Future()  # the first, after which nothing is sampled any more
        self._stages = [ThreadPoolExecutor(1, f"stage-{number}") for number in range(description.num_stages)]

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        copy = super().copy_out
        self._enter(0, 0.0, lambda: copy(device_blocks, host_blocks))

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        copy = super().copy_in
        self._enter(0, 0.0, lambda: copy(host_blocks, device_blocks))

    def launch(self, batch: StepBatch) -> Launch:
        """Raises EngineFailed as `refuse_pending` does."""
        refuse_pending(batch)
        sampled: Future[Sampled] = Future()
        share_s = self._step_time.duration_s(batch) / len(self._stages)
        self._enter(0, share_s, lambda: sampled.set_result(self.execute(batch)))
        return Passing(sampled, self._failure)

    def _enter(self, stage: int, share_s: float, end: Callable[[], None]) -> None:
        """Spend `share_s` in this stage and those after it; the last does `end`."""
        self._stages[stage].submit(self._pass, stage, share_s, end)

    def _pass(self, stage: int, share_s: float, end: Callable[[], None]) -> None:
        if self._failure.done():
            return
        try:
            if share_s:
                self._sleeps[stage](share_s)
            if stage + 1 < len(self._stages):
                self._enter(stage + 1, share_s, end)
            else:
                end()
        except Exception as error:  # noqa: BLE001  # raised again by whoever waits for a step
            if not self._failure.done():
                self._failure.set_exception(error)
