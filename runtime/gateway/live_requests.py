"""The requests that live at the scheduler, and the stream that they share."""

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence

from jetway.runtime.errors import Cancelled, DeadlineExceeded, EngineFailed, JetwayError, Overloaded, Unavailable
from jetway.runtime.wire import error_from_proto
from jetway.scheduler.request import Request
from jetway.v1 import common_pb2, scheduler_pb2

from .generation import Generation
from .inbox import End, Inbox

MAX_WAITING_MESSAGES = 4096  # a stream that is this far behind takes no more requests


class LiveRequests:
    """Multiplexes requests over one stream after the other: `begin` is what goes up, `receive` takes what comes down."""

    def __init__(self) -> None:
        self._live: dict[int, Generation] = {}
        self._outgoing = _Outgoing()
        self._handles = itertools.count(1)

    def add(self, requests: Sequence[Request], inbox: Inbox) -> list[Generation]:
        """Ask for requests, whose choices are numbered through. Raises Overloaded when the stream is far behind."""
        if len(self._outgoing.waiting) >= MAX_WAITING_MESSAGES:
            raise Overloaded(f"{MAX_WAITING_MESSAGES} messages wait for the scheduler, which is the limit")
        first_choices = itertools.accumulate((request.n for request in requests), initial=0)
        return [self._add(request, inbox, first_choice) for request, first_choice in zip(requests, first_choices)]

    def _add(self, request: Request, inbox: Inbox, first_choice: int) -> Generation:
        handle = next(self._handles)
        generation = self._live[handle] = Generation(handle, request, inbox, first_choice, self._send)
        self._send(generation.add())
        return generation

    def begin(self) -> AsyncIterator[scheduler_pb2.SessionRequest]:
        """For a new stream: everything that lives, then what is said, in order, for ever.

        What waited for the stream before is void: whatever it asked for is asked again.
        """
        for generation in self._live.values():
            generation.settle()
        self._live = {handle: generation for handle, generation in self._live.items() if not generation.ended}
        self._outgoing = _Outgoing(generation.add() for generation in self._live.values())
        return self._outgoing.messages()

    def receive(self, frame: scheduler_pb2.SessionFrame) -> None:
        """Hand a frame's news to the generations. All of it is there before any of them looks."""
        live = self._live
        for handle in frame.accepted:
            if generation := live.get(handle):
                generation.accept()
        for refusal in frame.refused:
            if generation := live.pop(refusal.handle, None):
                generation.refuse(error_from_proto(refusal.error))
        gained: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # a slow gateway's frame holds many steps
        for sequence, token in zip(zip(frame.token_handles, frame.token_indices), frame.tokens, strict=True):
            gained[sequence].append(token)
        for (handle, index), tokens in gained.items():
            if generation := live.get(handle):
                generation.push(index, tokens)
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
            generation.withdraw()
            generation.refuse(Unavailable(reason))

    def _send(self, message: scheduler_pb2.SessionRequest) -> None:
        """Cancels and finishes are never refused: there is at most one of each for a sequence that was added."""
        self._outgoing.say(message)


class _Outgoing:
    """What waits to go up one stream."""

    def __init__(self, messages: Iterable[scheduler_pb2.SessionRequest] = ()) -> None:
        self.waiting = deque(messages)
        self._something_waits = asyncio.Event()

    def say(self, message: scheduler_pb2.SessionRequest) -> None:
        self.waiting.append(message)
        self._something_waits.set()

    async def messages(self) -> AsyncIterator[scheduler_pb2.SessionRequest]:
        while True:
            while self.waiting:
                yield self.waiting.popleft()
            self._something_waits.clear()
            await self._something_waits.wait()


def _end_from_proto(end: scheduler_pb2.SequenceEnd) -> End:
    error = error_from_proto(end.error) if end.HasField("error") else _error_of(end.reason)
    queued_s = end.queued_s if end.HasField("queued_s") else None
    return End(end.reason, end.num_cached_tokens, error, queued_s)


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
