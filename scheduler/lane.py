"""The aged lane: the one place where waiting long counts.

At most `num_slots` sequences run in it, in the order in which they became due; they stand before every level, and no
waiting work displaces them. So the j-th aged sequence starts at most max_wait plus the lane's service of the j - 1
before it after its arrival.

Nothing is kept free for it: while nothing is due it costs nothing. A sequence in it costs better classes a slot, the
blocks that it needs, and of each step's budget one block while it prefills. Where room has to be made, the first in the
lane takes what it needs, since the bound must hold; others take no more than one better sequence's place.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple

from .sequence import Sequence
from .state import State


class _Due(NamedTuple):
    due: float
    order: int  # unique, so that sequences are never compared
    sequence: Sequence


class _ClassDue:
    """What is due of one class. A sequence is in here once; one that has started or ended goes when it comes up, or at a sweep."""

    def __init__(self) -> None:
        self._heap: list[_Due] = []
        self._inside: set[Sequence] = set()
        self._sweep_at = 64

    def enter(self, sequence: Sequence, due: float) -> None:
        if sequence in self._inside:
            return
        heapq.heappush(self._heap, _Due(due, sequence.order, sequence))
        self._inside.add(sequence)
        if len(self._heap) > self._sweep_at:
            self._heap = [entry for entry in self._heap if _waits(entry.sequence)]
            self._inside = {entry.sequence for entry in self._heap}
            heapq.heapify(self._heap)
            self._sweep_at = 2 * len(self._heap) + 64

    def peek(self) -> _Due | None:
        while self._heap and not _waits(self._heap[0].sequence):
            self._inside.discard(heapq.heappop(self._heap).sequence)
        return self._heap[0] if self._heap else None


class AgedLane:
    """Who may enter, by the time since when. Classes stand apart, so that a closed one holds up no other."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._classes: dict[str, _ClassDue] = {}

    def enter(self, sequence: Sequence, due: float) -> None:
        """The sequence has waited long enough, as of `due`. Without slots there is no lane."""
        if self.num_slots:
            self._classes.setdefault(sequence.request.service_class, _ClassDue()).enter(sequence, due)

    def peek(self, is_open: Callable[[str], bool] = lambda name: True) -> Sequence | None:
        """The sequence that became due first of those that still wait, in classes that are open."""
        heads = (each.peek() for name, each in self._classes.items() if is_open(name))
        first = min((head for head in heads if head is not None), default=None)
        return None if first is None else first.sequence


def _waits(sequence: Sequence) -> bool:
    return sequence.state in (State.WAITING, State.PREEMPTED)
