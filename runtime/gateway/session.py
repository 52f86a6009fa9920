"""The gateway's side of `jetway.v1.Scheduler.Session`: always one connection, or the attempt to get one."""

import asyncio
import logging
from collections.abc import Sequence

import grpc

from jetway.runtime.errors import Unavailable
from jetway.runtime.wire import CHANNEL_OPTIONS
from jetway.scheduler.request import Request
from jetway.v1 import common_pb2, scheduler_pb2, scheduler_pb2_grpc

from .generation import Generation
from .inbox import Inbox
from .live_requests import LiveRequests
from .switch import Switch

log = logging.getLogger(__name__)

_BACKOFF_S = 0.05  # doubles with each stream that ends before its first frame ...
_MAX_BACKOFF_S = 1.0  # ... up to this
_STATS_TIMEOUT_S = 1.0
_CHANNEL_OPTIONS = [
    *CHANNEL_OPTIONS,
    # What this gateway is slow to take gathers at the scheduler, into larger frames, and not on the way.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 14),
]


class SchedulerSession:
    """Holds one stream to the scheduler at `address` ("unix:/path" or "host:port"), and opens the next when it ends.
    Requests go on over the next one, from the tokens that are here.

    A scheduler that stays away for `recovery_limit_s` loses them: they end as Unavailable, and so does every call until
    it is back. `connection` is on while there is a stream, `ready` while the scheduler says that what it gets is computed.
    """

    def __init__(self, address: str, recovery_limit_s: float) -> None:
        self._address = address
        self._recovery_limit_s = recovery_limit_s
        self._requests = LiveRequests()
        self._engine: common_pb2.EngineDescription | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.connection = Switch()
        self.ready = Switch()

    @property
    def engine(self) -> common_pb2.EngineDescription:
        """What the scheduler serves. Raises Unavailable while no call can start."""
        self.check_available()
        assert self._engine is not None
        return self._engine

    def check_available(self) -> None:
        """Raise Unavailable while no call can start: there is no scheduler, and there was none lately."""
        if self._engine is None:
            raise Unavailable("the gateway has no connection to the scheduler; try again")

    def check_ready(self) -> None:
        """Raise Unavailable unless calls can start, and are computed."""
        if not self.connection.on.is_set():
            raise Unavailable("the gateway has no connection to the scheduler")
        if not self.ready.on.is_set():
            raise Unavailable("the scheduler has no executor, or waits for a step that does not end")

    def start(self) -> None:
        """Idempotent."""
        if self._task is not None:
            return
        self._channel = grpc.aio.insecure_channel(self._address, options=_CHANNEL_OPTIONS)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the stream and, as Unavailable, every request that still lives."""
        self._give_up("the gateway is shutting down")
        assert self._task is not None, "a session that was started"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._giving_up is not None:
            self._giving_up.cancel()
        await self._channel.close()

    async def submit(self, requests: Sequence[Request], inbox: Inbox) -> list[Generation]:
        """Hand the requests of one call to the scheduler; returns once all are accepted, to be heard in `inbox`.

        Raises the error of the first that is refused, and cancels the others.
        """
        self.check_available()
        generations = self._requests.add(requests, inbox)
        try:
            await inbox.accepted()
        except BaseException:
            for generation in generations:
                generation.cancel()
            raise
        return generations

    async def stats(self) -> scheduler_pb2.StatsResponse:
        """The scheduler's figures as they stand. Raises Unavailable when it does not say them in time."""
        stub = scheduler_pb2_grpc.SchedulerStub(self._channel)
        try:
            return await stub.Stats(scheduler_pb2.StatsRequest(), timeout=_STATS_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise Unavailable(f"the scheduler does not say its figures: {error.details()}") from error

    async def _run(self) -> None:
        backoff_s = _BACKOFF_S
        while True:
            try:
                await self._converse()
                log.warning("the scheduler ended the session")
            except grpc.aio.AioRpcError as error:
                log.warning("the session with the scheduler failed: %s", error.details())
            except Exception:
                log.exception("a fault of the gateway ended the session with the scheduler")
            finally:
                served = self.connection.on.is_set()
                self._disconnected()
            backoff_s = _BACKOFF_S if served else min(2 * backoff_s, _MAX_BACKOFF_S)
            await asyncio.sleep(backoff_s)

    async def _converse(self) -> None:
        """One stream, from its first frame, which says what is served, to its end."""
        await self._channel.channel_ready()  # what is asked again is said as it stands then
        stub = scheduler_pb2_grpc.SchedulerStub(self._channel)
        call = stub.Session(self._requests.begin())
        try:
            async for frame in call:
                if frame.HasField("engine"):
                    self._connected(frame.engine)
                if frame.HasField("is_ready"):
                    self.ready.turn(on=frame.is_ready)
                self._requests.receive(frame)
        finally:
            call.cancel()

    def _connected(self, engine: common_pb2.EngineDescription) -> None:
        self._engine = engine
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        self.connection.turn(on=True)

    def _disconnected(self) -> None:
        """What lives waits for the next stream, for so long."""
        if self.connection.on.is_set():
            reason = "the connection to the scheduler was lost; try again"
            self._giving_up = asyncio.get_running_loop().call_later(self._recovery_limit_s, self._give_up, reason)
        self.connection.turn(on=False)
        self.ready.turn(on=False)

    def _give_up(self, reason: str) -> None:
        self._engine = None
        self._requests.lose(reason)
