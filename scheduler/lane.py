"""The aged lane: the one place where waiting long counts.

At most `num_slots` sequences run in it, in the order in which they became due; they stand before every level, and no
waiting work displaces them. So the j-th aged sequence starts at most max_wait plus the lane's service of the j - 1
before it after its arrival. Classes that do not age never use the lane's slots, so it takes no slot from them; the
blocks and the budget that its few sequences need it takes from every level.
"""

import heapq

from .sequence import Sequence
from .state import State


class AgedLane:
    """Who may enter, by the time since when. A sequence is in here once, and goes when it starts or ends."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._due: list[tuple[float, int, Sequence]] = []
        self._inside: set[Sequence] = set()
        self._sweep_at = 64

    def enter(self, sequence: Sequence, due: float) -> None:
        """The sequence has waited long enough, as of `due`. Without slots there is no lane."""
        if not self.num_slots or sequence in self._inside:
            return
        heapq.heappush(self._due, (due, sequence.order, sequence))
        self._inside.add(sequence)
        if len(self._due) > self._sweep_at:
            self._due = [entry for entry in self._due if _waits(entry[2])]
            self._inside = {sequence for _, _, sequence in self._due}
            heapq.heapify(self._due)
            self._sweep_at = 2 * len(self._due) + 64

    def peek(self) -> Sequence | None:
        """The sequence that became due first of those that still wait."""
        while self._due and not _waits(self._due[0][2]):
            self._inside.discard(heapq.heappop(self._due)[2])
        return self._due[0][2] if self._due else None


def _waits(sequence: Sequence) -> bool:
    return sequence.state in (State.WAITING, State.PREEMPTED)
