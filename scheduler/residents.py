"""The sequences that hold a slot of the executor, best rank first."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from .plan import Slot
from .sequence import LANE, Rank, Sequence


class Residents:
    """Slots and their owners. A slot given back goes into the next plan's releases and may start anew there."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = [Slot(slot) for slot in reversed(range(num_slots))]
        self._ranked: list[Sequence] = []
        self._released: list[Slot] = []

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

    @property
    def has_free_slot(self) -> bool:
        return bool(self._free)

    def add(self, sequence: Sequence) -> Slot:
        """Give the sequence a free slot and its place by rank."""
        sequence.slot = self._free.pop()
        insort(self._ranked, sequence, key=_rank)
        return sequence.slot

    def remove(self, sequence: Sequence) -> None:
        """Take the slot back; the next plan tells the executor."""
        assert sequence.slot is not None
        self._ranked.remove(sequence)
        self._released.append(sequence.slot)
        self._free.append(sequence.slot)
        sequence.slot = None

    def take_releases(self) -> list[Slot]:
        """The slots given back since the last plan."""
        released, self._released = self._released, []
        return released

    def check(self) -> None:
        """Raise AssertionError unless slots add up and ranks ascend."""
        held = [sequence.slot for sequence in self._ranked]
        assert sorted(self._free + [slot for slot in held if slot is not None]) == list(range(self.num_slots))
        assert None not in held, "a resident without a slot"
        ranks = [sequence.rank for sequence in self._ranked]
        assert ranks == sorted(ranks), f"residents out of order: {self._ranked}"


def _standing(sequence: Sequence) -> int:
    return sequence.standing


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank
