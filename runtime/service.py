"""The scheduler's gRPC service: gateways' sessions on one side, the scheduler's calls and events on the other."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import grpc

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.events import Event, RequestFinished
from jetway.scheduler.request import InvalidRequest, Request, SequenceId
from jetway.scheduler.scheduler import Scheduler
from jetway.v1 import scheduler_pb2, scheduler_pb2_grpc

from .errors import InvalidArgument, Overloaded
from .outbox import Outbox
from .stats import stats_to_proto
from .watchdog import Watchdog
from .wire import description_to_proto, sampling_from_proto

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Session:
    """One gateway's stream. `live` maps its handles to the scheduler's request ids."""

    number: int
    outbox: Outbox = field(default_factory=Outbox)
    live: dict[int, str] = field(default_factory=dict)


class _HandleReused(Exception):
    """A gateway names two of its live requests alike; its own fault, so its own session ends."""


class _Route(NamedTuple):
    """Where a request's events go."""

    session: _Session
    handle: int


class SchedulerService(scheduler_pb2_grpc.SchedulerServicer):
    """Parses what gateways ask and routes what the scheduler says.

    Sets `work` after every call that changes the scheduler; `clock` gives seconds. Runs on the step loop's thread.
    """

    def __init__(self, scheduler: Scheduler, work: asyncio.Event, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._work = work
        self._clock = clock
        self._routes: dict[str, _Route] = {}
        self._sessions: dict[int, _Session] = {}
        self._num_sessions = 0
        self._is_ready = False
        self.watchdog = Watchdog(scheduler, clock)

    def tell_ready(self, *, ready: bool) -> None:
        """Tell every gateway whether requests are computed, if that has changed."""
        if ready != self._is_ready:
            self._is_ready = ready
            for session in self._sessions.values():
                session.outbox.ready(ready=ready)

    def publish(self, events: list[Event]) -> None:
        """Hand each event to the session that the request came from; a gateway that does not read loses its session."""
        for event in events:
            if isinstance(event, RequestFinished):
                session, handle = self._routes.pop(event.request_id)
                del session.live[handle]
            else:
                session, handle = self._routes[event.sequence_id.request_id]
                session.outbox.put(handle, event)
        for session in [session for session in self._sessions.values() if session.outbox.is_full]:
            log.warning("session %d does not read its frames; cutting it", session.number)
            session.outbox.close()  # before its requests end: it goes on with them over its next stream
            self._drop(session)

    async def Session(
        self,
        request_iterator: AsyncIterator[scheduler_pb2.SessionRequest],
        context: grpc.aio.ServicerContext[scheduler_pb2.SessionRequest, scheduler_pb2.SessionFrame],
    ) -> AsyncIterator[scheduler_pb2.SessionFrame]:
        """One gateway. When its stream ends, for whatever reason, its live requests are cancelled."""
        self._num_sessions += 1
        session = self._sessions[self._num_sessions] = _Session(self._num_sessions)
        reader = asyncio.create_task(self._read(session, request_iterator))
        try:
            engine = description_to_proto(self._scheduler.engine)
            yield scheduler_pb2.SessionFrame(engine=engine, is_ready=self._is_ready)
            while (frame := await session.outbox.next_frame()) is not None:
                yield frame
            if not reader.done():
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this gateway does not read its frames")
            await reader  # raises what ended it
        except _HandleReused as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            reader.cancel()
            self._drop(session)

    async def Stats(
        self,
        request: scheduler_pb2.StatsRequest,
        context: grpc.aio.ServicerContext[scheduler_pb2.StatsRequest, scheduler_pb2.StatsResponse],
    ) -> scheduler_pb2.StatsResponse:
        now = self._clock()
        return stats_to_proto(self._scheduler.stats(now), self._scheduler.engine, self.watchdog.pace(), now)

    async def _read(self, session: _Session, requests: AsyncIterator[scheduler_pb2.SessionRequest]) -> None:
        try:
            async for message in requests:
                if session.number in self._sessions:  # else it was cut: what it asks, it asks again
                    self._take(session, message)
                    self._changed()
        finally:
            self._drop(session)

    def _take(self, session: _Session, message: scheduler_pb2.SessionRequest) -> None:
        """A handle that is not live is no error: the end crossed the cancel."""
        match message.WhichOneof("action"):
            case "add":
                self._add(session, message.add)
            case "cancel" if request_id := session.live.get(message.cancel.handle):
                self._scheduler.abort(request_id)
            case "finish" if request_id := session.live.get(message.finish.handle):
                sequence_id = SequenceId(request_id, message.finish.sequence_index)
                self._scheduler.finish(sequence_id, message.finish.kept_tokens)

    def _add(self, session: _Session, add: scheduler_pb2.Add) -> None:
        """Accept or refuse. The scheduler's id also tells apart equal public ids of different clients."""
        if add.handle in session.live:
            raise _HandleReused(f"handle {add.handle} names a request that still lives")
        request_id = f"{add.request_id}#{session.number}.{add.handle}"
        try:
            request = Request(
                id=request_id,
                prompt=list(add.prompt),
                sampling=sampling_from_proto(add.sampling),
                max_tokens=add.max_tokens if add.HasField("max_tokens") else None,
                n=add.n or 1,
                service_class=add.service_class or "standard",
                tenant=add.tenant,
                priority=add.priority,
                deadline_s=add.deadline_ms / 1000 if add.HasField("deadline_ms") else None,
                queue_timeout_s=add.queue_timeout_ms / 1000 if add.HasField("queue_timeout_ms") else None,
            )
            generated = {each.sequence_index: each.tokens for each in add.generated}
            self._scheduler.add(request, self._clock() - add.age_ms / 1000, generated or None)
        except InvalidRequest as error:
            session.outbox.refused(add.handle, InvalidArgument(str(error), param=error.param))
        except QueueFull as error:
            session.outbox.refused(add.handle, Overloaded(str(error), retry_after_s=error.retry_after_s))
        else:
            extra = {"request_id": add.request_id}
            log.debug("accepted %s: %d prompt tokens", request_id, len(add.prompt), extra=extra)
            session.live[add.handle] = request_id
            self._routes[request_id] = _Route(session, add.handle)
            session.outbox.accepted(add.handle)

    def _drop(self, session: _Session) -> None:
        """Cancel what lives of the session, and say no more to it."""
        if self._sessions.pop(session.number, None) is None:
            return
        for request_id in list(session.live.values()):
            self._scheduler.abort(request_id)
        self._changed()
        session.outbox.close()

    def _changed(self) -> None:
        self.publish(self._scheduler.events())
        self._work.set()
