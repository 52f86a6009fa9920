"""One stream to the scheduler and the requests that live on it."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator

from jetway.runtime.errors import Cancelled, DeadlineExceeded, EngineFailed, JetwayError, Overloaded, Unavailable
from jetway.runtime.executor.wire import sampling_to_proto
from jetway.scheduler.request import Request
from jetway.v1 import common_pb2, scheduler_pb2

from .generation import End, Generation
from .wire import error_from_proto

MAX_WAITING_MESSAGES = 4096  # a stream that is this far behind takes no more requests


class Connection:
    """Multiplexes requests over one stream: `outgoing` is what goes up, `receive` takes what comes down."""

    def __init__(self) -> None:
        self._live: dict[int, Generation] = {}
        self._waiting: deque[scheduler_pb2.SessionRequest] = deque()
        self._something_waits = asyncio.Event()
        self._handles = itertools.count(1)

    def add(self, request: Request) -> Generation:
        """Ask for a request; its `accepted` says what came of it. Raises Overloaded when the stream is far behind."""
        if len(self._waiting) >= MAX_WAITING_MESSAGES:
            raise Overloaded(f"{MAX_WAITING_MESSAGES} messages wait for the scheduler, which is the limit")
        handle = next(self._handles)
        generation = self._live[handle] = Generation(request.n, self._send, handle)
        add = scheduler_pb2.Add(
            handle=handle,
            request_id=request.id,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            sampling=sampling_to_proto(request.sampling),
            n=request.n,
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
                generation.lose(error_from_proto(refusal.error))
        for handle, index, token in zip(frame.token_handles, frame.token_indices, frame.tokens, strict=True):
            if generation := live.get(handle):
                generation.push(index, token)
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
        """Cancels and finishes are never refused: there is at most one for each sequence that was added."""
        self._waiting.append(message)
        self._something_waits.set()


_ERRORS: dict[common_pb2.FinishReason.ValueType, JetwayError] = {
    common_pb2.FINISH_REASON_CANCELLED: Cancelled("the scheduler cancelled this request"),
    common_pb2.FINISH_REASON_EXPIRED: DeadlineExceeded("the request took longer than it may"),
    common_pb2.FINISH_REASON_FAILED: EngineFailed("the engine failed on this request"),
}


def _end_from_proto(end: scheduler_pb2.SequenceEnd) -> End:
    error = error_from_proto(end.error) if end.HasField("error") else _ERRORS.get(end.reason)
    return End(end.reason, error)
