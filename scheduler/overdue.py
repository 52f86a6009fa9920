"""Time has passed: what is too late ends, what has waited long enough may enter the lane."""

from collections.abc import Callable
from collections.abc import Sequence as Items

from .admission import Admission
from .classes import TimeoutAction
from .events import FinishReason
from .ledger import Ledger
from .queues import Queues
from .sequence import Sequence
from .stats import Counters, Rejection
from .timers import Alarm, Timers


class Overdue:
    """Acts on the alarms that ring. `end` ends a sequence, with the reason and why."""

    def __init__(
        self,
        timers: Timers,
        queues: Queues,
        ledger: Ledger,
        admission: Admission,
        counters: Counters,
        end: Callable[[Sequence, FinishReason, str], None],
    ) -> None:
        self._timers = timers
        self._queues = queues
        self._ledger = ledger
        self._admission = admission
        self._counters = counters
        self._end = end

    def ring(self, now: float) -> None:
        for alarm, sequence in self._timers.ring(now):
            waited_s = now - sequence.arrival
            if alarm is Alarm.AGED:
                self._queues.age(sequence, now)
            elif alarm is Alarm.DEADLINE:
                self._end(sequence, FinishReason.EXPIRED, f"the deadline passed after {waited_s:.3g} s")
            else:
                self._time_out(self._ledger.of_request(sequence.id.request_id), waited_s)

    def _time_out(self, siblings: Items[Sequence], waited_s: float) -> None:
        """The request has waited as long as its class allows. Once a sequence of it has started, it waits no more."""
        if any(sequence.first_start is not None for sequence in siblings):
            return
        if self._queues.class_of(siblings[0].request).queue_timeout_action is TimeoutAction.DELAY:
            for sequence in siblings:
                self._admission.delay(sequence)
            return
        self._counters.rejections[Rejection.QUEUE_TIMEOUT] += 1
        for sequence in siblings:
            self._end(sequence, FinishReason.EXPIRED, f"not started after {waited_s:.3g} s in the queue")
