"""How far the scheduler plans ahead of the executor's results."""

from collections import deque
from statistics import median
from typing import Protocol

from .errors import ConfigError

AUTO = "auto"
WORTH_HIDING = 0.005  # of the median step: depth 1 costs a new arrival one more step (DESIGN section 5)
NUM_STEPS = 64  # that the medians are taken over; decided anew after as many


class Overlap(Protocol):
    """`depth` plans may be in flight when another is made."""

    @property
    def depth(self) -> int: ...

    def observe(self, *, gap_s: float, elapsed_s: float) -> None:
        """A step of `elapsed_s` at the engine, and what of the time from its plan to the next was not the engine's."""


class FixedOverlap:
    """The depth that was asked for."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def observe(self, *, gap_s: float, elapsed_s: float) -> None:
        pass


class AutoOverlap:
    """Depth 1 while the gap that it hides is worth it.

    The gap can be seen only where nothing hides it: the last one seen at depth 0 counts until steps have become so much
    longer that it is not worth hiding.
    """

    def __init__(self) -> None:
        self.depth = 0
        self._gap_s = 0.0
        self._gaps_s: deque[float] = deque(maxlen=NUM_STEPS)
        self._steps_s: deque[float] = deque(maxlen=NUM_STEPS)

    def observe(self, *, gap_s: float, elapsed_s: float) -> None:
        self._steps_s.append(elapsed_s)
        if self.depth == 0:
            self._gaps_s.append(gap_s)
        if len(self._steps_s) == NUM_STEPS:
            if self.depth == 0:
                self._gap_s = median(self._gaps_s)
            self.depth = int(self._gap_s > WORTH_HIDING * median(self._steps_s))
            self._steps_s.clear()
            self._gaps_s.clear()


def make_overlap(setting: str, num_stages: int) -> Overlap:
    """As the configuration says it: "auto", or a depth. Raises ConfigError for one that the engine has no stages for.

    A pipeline has one plan a stage under way, and one more to begin with as soon as the first stage is free.
    """
    if setting == AUTO:
        return AutoOverlap() if num_stages == 1 else FixedOverlap(num_stages)
    depth = int(setting)
    if depth > num_stages:
        raise ConfigError(f"overlap is {depth}; an engine of {num_stages} stages has use for {num_stages} at most")
    return FixedOverlap(depth)


def num_micro_batches(setting: str, num_stages: int) -> int:
    """How many plans share the sequences that decode: as many as are under way in the stages at once."""
    return num_stages if setting == AUTO else min(num_stages, 1 + int(setting))
