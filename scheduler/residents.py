"""The sequences that hold a slot of the executor, best rank first."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from .plan import Slot
from .sequence import LANE, Rank, Sequence


class Residents:
    """Slots and their owners. A slot given back goes into the next plan's releases and may start anew there.

    Sequences of classes that do not age leave the aged lane's slots to those that do.
    """

    def __init__(self, num_slots: int, *, num_aged_slots: int) -> None:
        self._num_slots = num_slots
        self._num_ageless_slots = num_slots - num_aged_slots
        self._free = [Slot(slot) for slot in reversed(range(num_slots))]
        self._ranked: list[Sequence] = []
        self._released: list[Slot] = []
        self._num_ageless = 0

    def __len__(self) -> int:
        return len(self._ranked)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._ranked)

    def __getitem__(self, position: int) -> Sequence:
        return self._ranked[position]

    @property
    def num_in_lane(self) -> int:
        """The lane stands before every level."""
        return bisect_left(self._ranked, LANE + 1, key=_standing)

    @property
    def has_releases(self) -> bool:
        return bool(self._released)

    def has_slot_for(self, sequence: Sequence, *, num_left: int = 0, num_ageless_left: int = 0) -> bool:
        """Whether the sequence could have a slot if so many had left, and so many of those do not age."""
        if len(self._free) + num_left == 0:
            return False
        return sequence.ages or self._num_ageless - num_ageless_left < self._num_ageless_slots

    def add(self, sequence: Sequence) -> Slot:
        """Give the sequence a free slot and its place by rank."""
        sequence.slot = self._free.pop()
        self._count(sequence, 1)
        insort(self._ranked, sequence, key=_rank)
        return sequence.slot

    def remove(self, sequence: Sequence) -> None:
        """Take the slot back; the next plan tells the executor."""
        assert sequence.slot is not None
        self._ranked.remove(sequence)
        self._count(sequence, -1)
        self._released.append(sequence.slot)
        self._free.append(sequence.slot)
        sequence.slot = None

    def _count(self, sequence: Sequence, change: int) -> None:
        self._num_ageless += change * (not sequence.ages)

    def take_releases(self) -> list[Slot]:
        """The slots given back since the last plan."""
        released, self._released = self._released, []
        return released

    def check(self) -> None:
        """Raise AssertionError unless slots add up and ranks ascend."""
        held = [sequence.slot for sequence in self._ranked]
        assert sorted(self._free + [slot for slot in held if slot is not None]) == list(range(self._num_slots))
        assert None not in held, "a resident without a slot"
        assert self._num_ageless == sum(not sequence.ages for sequence in self._ranked)
        ranks = [sequence.rank for sequence in self._ranked]
        assert ranks == sorted(ranks), f"residents out of order: {self._ranked}"


def _standing(sequence: Sequence) -> int:
    return sequence.standing


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank
