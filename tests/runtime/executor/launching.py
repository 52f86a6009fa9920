"""A device that does nothing before somebody waits for it, then all it was asked for in order."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jetway.runtime.executor.base import Int32Array, Launch, Sampled, StepBatch
from jetway.runtime.executor.simulated import PLAIN, SimulatedBehaviour, SimulatedEngine
from tests.runtime.executor.driving import make_description


@dataclass
class LaunchedStep:
    engine: "LaunchingEngine"
    sampled: list[Sampled] = field(default_factory=list)

    def wait(self) -> Sampled:
        while not self.sampled:
            self.engine.asked.popleft()()
        return self.sampled[0]


class LaunchingEngine(SimulatedEngine):
    """A simulated engine that feeds pending rows with what was sampled in their slots."""

    max_launches = 3

    def __init__(self, behaviour: SimulatedBehaviour = PLAIN, eos: frozenset[int] = frozenset()) -> None:
        super().__init__(make_description(), eos, behaviour)
        self.asked: deque[Callable[[], None]] = deque()
        self.num_pending = 0
        self._last_tokens = np.zeros(make_description().max_num_seqs, np.int64)

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        copy = super().copy_out
        self.asked.append(lambda: copy(device_blocks, host_blocks))

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        copy = super().copy_in
        self.asked.append(lambda: copy(host_blocks, device_blocks))

    def launch(self, batch: StepBatch) -> Launch:
        self.num_pending += len(batch.pending_rows)
        launched = LaunchedStep(self)
        self.asked.append(lambda: launched.sampled.append(self.execute(batch)))
        return launched

    def execute(self, batch: StepBatch) -> Sampled:
        pending = batch.pending_rows
        batch.input_ids[batch.subsequence_begins[pending]] = self._last_tokens[batch.row_slots[pending]]
        sampled = super().execute(batch)
        rows = np.searchsorted(batch.subsequence_begins, batch.sample_tokens, side="right") - 1
        self._last_tokens[batch.row_slots[rows]] = sampled.tokens
        return sampled
