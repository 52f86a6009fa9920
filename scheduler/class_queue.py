"""One service class: what waits there for its first start, shared between tenants and bounded, and what was displaced."""

from collections import Counter
from collections.abc import Iterator, Mapping

from .backlog import Backlog
from .classes import ServiceClass
from .fairness import FairShare
from .queue import Queue
from .request import InvalidRequest, Request
from .sequence import Sequence
from .stats import ClassStats, Rejection, Waits


class QueueFull(Exception):
    """The request was not accepted: its class may not queue more now. The message names limit and value.

    `retry_after_s` is when there may be room, computed from what is queued and the rate at which it is served.
    """

    retry_after_s: int | None = None

    def __init__(self, limit: Rejection, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class ClassQueue:
    """One queue a tenant, in order of priority and arrival; the tenant with the least counter is next."""

    def __init__(self, service_class: ServiceClass, tenant_weights: Mapping[str, float]) -> None:
        self.service_class = service_class
        self.share: FairShare[str] = FairShare(lambda tenant: tenant_weights.get(tenant, 1.0))
        self._queues: dict[str, Queue] = {}
        self.resumes = Queue()  # what was displaced, in the order of rank, over all tenants
        self.backlog = Backlog()
        self._queued_requests: Counter[str] = Counter()  # their sequences that never started
        self.num_running = 0

    def __iter__(self) -> Iterator[Sequence]:
        """What is queued for its first start, in no order; parked sequences stand elsewhere."""
        return (sequence for queue in self._queues.values() for sequence in queue)

    @property
    def is_open(self) -> bool:
        """Whether another sequence of the class may run."""
        most = self.service_class.max_running
        return most is None or self.num_running < most

    def check_room(self, request: Request) -> None:
        """Raise QueueFull unless the request may queue now, InvalidRequest when it never could."""
        name, most = self.service_class.name, self.service_class.max_queued_tokens
        own_tokens = request.n * len(request.prompt)
        if own_tokens > most:
            raise InvalidRequest(
                "prompt", f"class {name} may queue {most} prompt tokens; this request has {own_tokens}"
            )
        if (tokens := self.backlog.num_queued_tokens + own_tokens) > most:
            message = f"class {name} may queue {most} prompt tokens; this request makes it {tokens}"
            raise QueueFull(Rejection.QUEUED_TOKENS, message)
        if (requests := len(self._queued_requests) + 1) > (most := self.service_class.max_queued_requests):
            message = f"class {name} may queue {most} requests; this request makes it {requests}"
            raise QueueFull(Rejection.QUEUED_REQUESTS, message)

    def stats(self, level: int, waits: Waits, expected_wait_s: float | None) -> ClassStats:
        limits = self.service_class
        return ClassStats(
            name=limits.name,
            level=level,
            num_running=self.num_running,
            num_queued=self.backlog.num_queued,
            num_queued_tokens=self.backlog.num_queued_tokens,
            num_queued_requests=len(self._queued_requests),
            num_displaced=waits.num_displaced[limits.name],
            waiting=dict(waits.reasons[limits.name]),
            oldest_wait_s=waits.oldest_s.get(limits.name, 0.0),
            expected_wait_s=expected_wait_s,
            weight=limits.weight,
            max_running=limits.max_running,
            max_queued_requests=limits.max_queued_requests,
            default_deadline_s=limits.default_deadline_s,
        )

    def enqueue(self, sequence: Sequence) -> None:
        """A new sequence waits for its first start."""
        self.backlog.queue(sequence)
        self._queued_requests[sequence.id.request_id] += 1
        self.share.enqueue(self.party(sequence.request.tenant))

    def dequeue(self, sequence: Sequence) -> None:
        """A sequence waits for its first start no more."""
        request_id = sequence.id.request_id
        self._queued_requests[request_id] -= 1
        if not self._queued_requests[request_id]:
            del self._queued_requests[request_id]
        self.share.dequeue(self.party(sequence.request.tenant))

    def party(self, tenant: str) -> str:
        """Whom a tenant's tokens are charged to: everyone alike where the class does not share."""
        return tenant if self.service_class.share_fairly else ""

    def put(self, sequence: Sequence) -> None:
        tenant = self.party(sequence.request.tenant)
        key = (sequence.request.priority, sequence.place)
        self._queues.setdefault(tenant, Queue()).push(key, sequence)
        self.share.offer(tenant)

    def take(self, sequence: Sequence) -> None:
        tenant = self.party(sequence.request.tenant)
        queue = self._queues[tenant]
        queue.remove(sequence)
        if not queue:
            del self._queues[tenant]
            self.share.rest(tenant)

    def peek(self) -> Sequence | None:
        """The sequence that starts next."""
        tenant = self.share.peek()
        return None if tenant is None else self._queues[tenant].peek()
