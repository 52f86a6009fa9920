"""What happens to a live sequence when time passes."""

import heapq
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from .classes import ServiceClass
from .sequence import Sequence
from .state import State


class Alarm(Enum):
    DEADLINE = auto()  # the answer would come too late
    QUEUE_TIMEOUT = auto()  # it has waited too long for its first start
    AGED = auto()  # it may enter the aged lane


class _Timer(NamedTuple):
    due: float
    number: int  # unique
    alarm: Alarm
    sequence: Sequence


class Timers:
    """A heap of alarms. Those of sequences that have finished are dead; they go when they surface or outnumber."""

    def __init__(self) -> None:
        self._heap: list[_Timer] = []
        self._num_set = 0
        self._num_dead = 0

    def __len__(self) -> int:
        """Alarms that are remembered."""
        return len(self._heap)

    def watch(self, sequence: Sequence, service_class: ServiceClass, *, times_out: bool) -> None:
        """Set all that its request and its class ask for, but no queue timeout unless it `times_out`."""
        for alarm, after_s in (
            (Alarm.DEADLINE, sequence.request.deadline_s or service_class.default_deadline_s),
            (Alarm.QUEUE_TIMEOUT, _queue_timeout_s(sequence, service_class) if times_out else None),
            (Alarm.AGED, service_class.max_wait_s),
        ):
            if after_s is not None:
                heapq.heappush(self._heap, _Timer(sequence.arrival + after_s, self._num_set, alarm, sequence))
                self._num_set += 1
                sequence.num_alarms += 1

    def forget(self, sequence: Sequence) -> None:
        """The sequence has finished."""
        self._num_dead += sequence.num_alarms
        if self._num_dead > len(self._heap) // 2 + 64:
            self._heap = [timer for timer in self._heap if _is_live(timer)]
            heapq.heapify(self._heap)
            self._num_dead = 0

    def next_due(self) -> float | None:
        """When the earliest alarm rings; None: never."""
        while self._heap and not _is_live(self._heap[0]):
            heapq.heappop(self._heap)
            self._num_dead -= 1
        return self._heap[0].due if self._heap else None

    def ring(self, now: float) -> Iterator[tuple[Alarm, Sequence]]:
        """The alarms that are due, earliest first."""
        while (due := self.next_due()) is not None and due <= now:
            timer = heapq.heappop(self._heap)
            timer.sequence.num_alarms -= 1
            yield timer.alarm, timer.sequence


def _queue_timeout_s(sequence: Sequence, service_class: ServiceClass) -> float | None:
    """The shorter of the request's and the class's."""
    given = (sequence.request.queue_timeout_s, service_class.queue_timeout_s)
    return min((each for each in given if each is not None), default=None)


def _is_live(timer: _Timer) -> bool:
    return timer.sequence.state is not State.FINISHED
