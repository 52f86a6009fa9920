"""One stream to the scheduler and the requests that live on it."""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import AsyncIterator, Sequence

from jetway.runtime.errors import Cancelled, DeadlineExceeded, EngineFailed, JetwayError, Overloaded, Unavailable
from jetway.runtime.wire import error_from_proto, sampling_to_proto
from jetway.scheduler.request import Request
from jetway.v1 import common_pb2, scheduler_pb2

from .generation import Generation
from .inbox import End, Inbox

MAX_WAITING_MESSAGES = 4096  # a stream that is this far behind takes no more requests


class Connection:
    """Multiplexes requests over one stream: `outgoing` is what goes up, `receive` takes what comes down."""

    def __init__(self) -> None:
        self._live: dict[int, Generation] = {}
        self._waiting: deque[scheduler_pb2.SessionRequest] = deque()
        self._something_waits = asyncio.Event()
        self._handles = itertools.count(1)

    def add(self, requests: Sequence[Request], inbox: Inbox) -> list[Generation]:
        """Ask for requests, whose choices are numbered through. Raises Overloaded when the stream is far behind."""
        if len(self._waiting) >= MAX_WAITING_MESSAGES:
            raise Overloaded(f"{MAX_WAITING_MESSAGES} messages wait for the scheduler, which is the limit")
        first_choices = itertools.accumulate((request.n for request in requests), initial=0)
        return [self._add(request, inbox, first_choice) for request, first_choice in zip(requests, first_choices)]

    def _add(self, request: Request, inbox: Inbox, first_choice: int) -> Generation:
        handle = next(self._handles)
        generation = self._live[handle] = Generation(handle, request.n, inbox, first_choice, self._send)
        add = scheduler_pb2.Add(
            handle=handle,
            request_id=request.id,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            sampling=sampling_to_proto(request.sampling),
            n=request.n,
            service_class=request.service_class,
            tenant=request.tenant,
            priority=request.priority,
            deadline_ms=None if request.deadline_s is None else math.ceil(1000 * request.deadline_s),
        )
        self._send(scheduler_pb2.SessionRequest(add=add))
        return generation

    async def outgoing(self) -> AsyncIterator[scheduler_pb2.SessionRequest]:
        """What waits for the scheduler, in order, for ever."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            self._something_waits.clear()
            await self._something_waits.wait()

    def receive(self, frame: scheduler_pb2.SessionFrame) -> None:
        """Hand a frame's news to the generations. All of it is there before any of them looks."""
        live = self._live
        for handle in frame.accepted:
            if generation := live.get(handle):
                generation.accept()
        for refusal in frame.refused:
            if generation := live.pop(refusal.handle, None):
                generation.refuse(error_from_proto(refusal.error))
        for handle, index, token in zip(frame.token_handles, frame.token_indices, frame.tokens, strict=True):
            if generation := live.get(handle):
                generation.push(index, token)
        for row, logprobs in zip(frame.logprob_rows, frame.logprobs, strict=True):
            if generation := live.get(frame.token_handles[row]):
                generation.push_logprobs(frame.token_indices[row], logprobs)
        for end in frame.ends:
            if generation := live.get(end.handle):
                generation.end(end.sequence_index, _end_from_proto(end))
                if generation.ended:
                    del live[end.handle]

    def lose(self, reason: str) -> None:
        """End every request as Unavailable."""
        live, self._live = self._live, {}
        for generation in live.values():
            generation.lose(Unavailable(reason))

    def _send(self, message: scheduler_pb2.SessionRequest) -> None:
        """Cancels and finishes are never refused: there is at most one of each for a sequence that was added."""
        self._waiting.append(message)
        self._something_waits.set()


def _end_from_proto(end: scheduler_pb2.SequenceEnd) -> End:
    error = error_from_proto(end.error) if end.HasField("error") else _error_of(end.reason)
    return End(end.reason, end.num_cached_tokens, error)


def _error_of(reason: common_pb2.FinishReason.ValueType) -> JetwayError | None:
    """For an end that the scheduler says no more about."""
    match reason:
        case common_pb2.FINISH_REASON_CANCELLED:
            return Cancelled("the scheduler cancelled this request")
        case common_pb2.FINISH_REASON_EXPIRED:
            return DeadlineExceeded("the request took longer than it may")
        case common_pb2.FINISH_REASON_FAILED:
            return EngineFailed("the engine failed on this request")
    return None
