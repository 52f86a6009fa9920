"""The sequences that wait, in the order they will start."""

import heapq
from typing import NamedTuple

from .classes import ServiceClass
from .hashing import BlockHash
from .request import Request
from .sequence import Sequence
from .state import State


class QueueFull(Exception):
    """The request was not accepted: its class may not queue more now. The message names limit and value."""


class _Entry(NamedTuple):
    """Preempted sequences come back before anything starts, by rank; the rest start in order of arrival."""

    is_new: bool
    first_start: int
    order: int  # unique, so that sequences are never compared
    sequence: Sequence


class WaitingQueue:
    """A heap with lazy deletion, and the sequences parked beside it until a block is computed. Push and pop are O(log n), removal is O(1) amortised, whatever waits.

    A sequence that finishes while it waits is only counted out; its entry goes when it reaches the top, or when dead
    entries outnumber the live ones.
    """

    def __init__(self, service_class: ServiceClass) -> None:
        self._class = service_class
        self._heap: list[_Entry] = []
        self._parked: dict[BlockHash, list[_Entry]] = {}
        self._num_live = 0
        self._num_new = 0  # never started; what the class's limits count
        self._num_new_tokens = 0

    def __len__(self) -> int:
        return self._num_live

    def check_room(self, request: Request) -> None:
        """Raise QueueFull unless the request's sequences may queue."""
        name, most, most_tokens = self._class.name, self._class.max_queued_requests, self._class.max_queued_tokens
        if (queued := self._num_new + request.n) > most:
            raise QueueFull(f"class {name} may queue {most} sequences; this request makes it {queued}")
        if (tokens := self._num_new_tokens + request.n * len(request.prompt)) > most_tokens:
            raise QueueFull(f"class {name} may queue {most_tokens} prompt tokens; this request makes it {tokens}")

    def push(self, sequence: Sequence) -> None:
        """Add a WAITING or PREEMPTED sequence."""
        is_new = sequence.first_start is None
        heapq.heappush(self._heap, _Entry(is_new, sequence.first_start or 0, sequence.order, sequence))
        self._count(sequence, 1)

    def park(self, name: BlockHash) -> None:
        """Set aside what `peek` shows until the block is computed or given up; others may overtake it meanwhile."""
        self._parked.setdefault(name, []).append(heapq.heappop(self._heap))

    def unpark(self, name: BlockHash) -> None:
        """Put back, in their order, all that wait for this block."""
        for entry in self._parked.pop(name, ()):
            heapq.heappush(self._heap, entry)

    def peek(self) -> Sequence | None:
        """The sequence that starts next, still queued."""
        while self._heap and self._heap[0].sequence.state is State.FINISHED:
            heapq.heappop(self._heap)
        return self._heap[0].sequence if self._heap else None

    def pop(self) -> Sequence:
        """Remove and return what `peek` shows. Raises IndexError when nothing waits."""
        self.peek()
        sequence = heapq.heappop(self._heap).sequence
        self._count(sequence, -1)
        return sequence

    def discard(self, sequence: Sequence) -> None:
        """Count out a queued sequence that has just become FINISHED."""
        self._count(sequence, -1)
        if len(self._heap) > 2 * self._num_live + 64:
            self._heap = [entry for entry in self._heap if entry.sequence.state is not State.FINISHED]
            heapq.heapify(self._heap)

    def live(self) -> list[Sequence]:
        """Everything that waits, in the order it will start. O(n log n): for a lost executor and for checks."""
        parked = (entry for entries in self._parked.values() for entry in entries)
        entries = sorted([*self._heap, *parked])
        return [entry.sequence for entry in entries if entry.sequence.state is not State.FINISHED]

    def _count(self, sequence: Sequence, change: int) -> None:
        self._num_live += change
        if sequence.first_start is None:
            self._num_new += change
            self._num_new_tokens += change * sequence.prompt_len
