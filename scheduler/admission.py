"""The way in: what can never run is refused by name, what may not queue now is told when to come back."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from itertools import count
from typing import NamedTuple

from .class_queue import QueueFull
from .demand import Demand
from .ledger import Ledger
from .limits import check_generated, output_limit
from .plan import EngineDescription
from .queues import Queues
from .request import InvalidRequest, Request
from .sequence import Sequence
from .stats import Counters, Rejection
from .timers import Timers


class Judgement(NamedTuple):
    """Of a request that may be queued."""

    max_output: int  # tokens
    expected_wait_s: float | None


class Admission:
    """Makes sequences of requests, in the order in which they come."""

    def __init__(self, queues: Queues, ledger: Ledger, timers: Timers, demand: Demand, counters: Counters) -> None:
        self._queues = queues
        self._ledger = ledger
        self._timers = timers
        self._demand = demand
        self._counters = counters
        self._arrivals = count()

    def admit(
        self,
        request: Request,
        engine: EngineDescription,
        arrival: float,
        generated: Mapping[int, Items[int]] | None,
    ) -> None:
        """Queue the request, or raise InvalidRequest (it could never run) or QueueFull (not now).

        One that has `generated` before is exempt from queue limits and queue timeouts. A queue timeout is the request's:
        its first sequence is watched for it.
        """
        try:
            max_output, expected_wait_s = self._judge(request, engine, generated)
        except InvalidRequest:
            self._counters.rejections[Rejection.INVALID] += 1
            raise
        except QueueFull as full:
            self._counters.rejections[full.limit] += 1
            raise
        service_class = self._queues.class_of(request)
        sequences = [
            Sequence(
                request=request,
                id=id,
                order=next(self._arrivals),
                arrival=arrival,
                expected_wait_s=expected_wait_s,
                max_output=max_output,
                generated=() if generated is None else generated[id.index],
                service_class=service_class,
            )
            for id in request.sequence_ids
            if generated is None or id.index in generated
        ]
        self._ledger.open(request.id, sequences)
        for sequence in sequences:
            self._queues.add(sequence)
            self._timers.watch(sequence, service_class, times_out=generated is None and sequence is sequences[0])

    def delay(self, sequence: Sequence) -> None:
        """Let all that its tenant has waiting go first."""
        self._queues.delay(sequence, next(self._arrivals))

    def _judge(
        self, request: Request, engine: EngineDescription, generated: Mapping[int, Items[int]] | None
    ) -> Judgement:
        """Raises InvalidRequest or QueueFull."""
        if self._ledger.of_request(request.id):
            raise InvalidRequest("request_id", f"a request {request.id!r} is live already")
        max_output = output_limit(request, engine)
        level = self._queues.class_of(request).level
        if generated is not None:
            check_generated(generated, request, engine, max_output)
            return Judgement(max_output, None)
        self._check_room(request, level)
        return Judgement(max_output, self._demand.wait_s(self._queues, level))

    def _check_room(self, request: Request, level: int) -> None:
        try:
            self._queues.check_room(request)
        except QueueFull as full:
            full.retry_after_s = self._demand.retry_after_s(self._queues, level, request.id)
            raise
