"""The aged lane: the one place where waiting long counts.

At most `num_slots` sequences run in it, in the order in which they became due; they stand before every level and no
waiting work displaces them. So the j-th aged sequence starts at most max_wait plus the lane's service of the j - 1
before it after its arrival. Classes that do not age never use the lane's slots: the lane costs them nothing.
"""

import heapq

from .sequence import Sequence
from .state import State


class AgedLane:
    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._due: list[tuple[float, int, Sequence]] = []

    def enter(self, sequence: Sequence, due: float) -> None:
        """The sequence has waited long enough, as of `due`."""
        heapq.heappush(self._due, (due, sequence.order, sequence))

    def peek(self) -> Sequence | None:
        """The sequence that became due first of those that still wait."""
        while self._due and not _waits(self._due[0][2]):
            heapq.heappop(self._due)
        return self._due[0][2] if self._due else None


def _waits(sequence: Sequence) -> bool:
    return sequence.state in (State.WAITING, State.PREEMPTED)
