"""Sequences in an order that is known when they are queued; removal from anywhere is free."""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from .sequence import Sequence

Key = tuple[int, ...]


class _Entry(NamedTuple):
    key: Key  # unique, so that sequences are never compared
    ticket: int
    sequence: Sequence


class Queue:
    """A heap with lazy deletion. Push and pop are O(log n), removal is O(1) amortised, whatever waits.

    Every push and removal gives the sequence a new ticket: an entry whose ticket is old is dead. Dead entries go when
    they reach the top, or when they outnumber the live ones.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._num_live = 0

    def __len__(self) -> int:
        return self._num_live

    def __iter__(self) -> Iterator[Sequence]:
        """What is queued, in no order."""
        return (entry.sequence for entry in self._heap if _is_live(entry))

    def push(self, key: Key, sequence: Sequence) -> None:
        """Queue the sequence; the least key comes first."""
        sequence.ticket += 1
        heapq.heappush(self._heap, _Entry(key, sequence.ticket, sequence))
        self._num_live += 1

    def peek(self) -> Sequence | None:
        while self._heap and not _is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0].sequence if self._heap else None

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is queued here."""
        sequence.ticket += 1
        self._num_live -= 1
        if len(self._heap) > 2 * self._num_live + 64:
            self._heap = [entry for entry in self._heap if _is_live(entry)]
            heapq.heapify(self._heap)


def _is_live(entry: _Entry) -> bool:
    return entry.ticket == entry.sequence.ticket
