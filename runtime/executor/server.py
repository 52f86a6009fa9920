"""The executor's end of the step boundary: one session at a time, its plans done in order."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc

from jetway.runtime.decoding import Decoding
from jetway.runtime.errors import ConfigError, EngineFailed
from jetway.runtime.wire import CHANNEL_OPTIONS, description_to_proto
from jetway.scheduler.plan import DeviceBlock, Slot, Start, StepPlan
from jetway.scheduler.request import SamplingParams, SequenceId
from jetway.v1 import common_pb2, executor_pb2, executor_pb2_grpc

from .base import Engine
from .health import StepHealth
from .leader import Followers, NoFollowers
from .session import End, Session
from .steps import Slots
from .wire import EPOCH_KEY
from .work import Device, Work

NUM_CALL_THREADS = 8  # each open call holds one


class ExecutorService(executor_pb2_grpc.ExecutorServicer):
    """Describe and Run over one engine.

    A newer session ends the running one at once, whether that waits for a plan or for the device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._opening = threading.Lock()  # guards `_session`, the only one that may run plans
        self._session: Session | None = None

    def Describe(
        self, request: executor_pb2.DescribeRequest, context: grpc.ServicerContext
    ) -> common_pb2.EngineDescription:
        return description_to_proto(self._device.engine.describe())

    def Run(
        self, request_iterator: Iterator[executor_pb2.StepPlan], context: grpc.ServicerContext
    ) -> Iterator[executor_pb2.StepResult]:
        session = self._open(context)
        session.run(request_iterator)
        for item in session.results():
            if isinstance(item, End):
                if item.code is not grpc.StatusCode.OK:
                    context.abort(item.code, item.details)
            else:
                yield item

    def _open(self, context: grpc.ServicerContext) -> Session:
        """Begin a session and end the running one. Aborts the call unless its epoch is newer."""
        value = dict(context.invocation_metadata()).get(EPOCH_KEY, "")
        if not str(value).isdecimal():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"metadata {EPOCH_KEY} must be a number, not {value!r}")
        session = Session(int(value), Work(self._device))
        with self._opening:
            running = self._session
            if running is not None and session.epoch <= running.epoch:
                message = f"epoch {session.epoch} is not newer than {running.epoch}, the last that began"
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
            self._session = session
        if running is not None:
            running.fence(End(grpc.StatusCode.ABORTED, f"a session of the newer epoch {session.epoch} has begun"))
        return session


class ExecutorServer:
    """Serves one engine at `address` ("unix:/path" or "host:port"), with health that follows its steps.

    Calls `beat` as long as they end: see StepHealth. An engine of several ranks has `new_followers` for each session.
    """

    def __init__(
        self,
        engine: Engine,
        address: str,
        *,
        step_limit_s: float = 30.0,
        beat: Callable[[], None] = lambda: None,
        new_followers: Callable[[], Followers] = NoFollowers,
    ) -> None:
        self._address = address
        self._health = StepHealth(step_limit_s, beat)
        self._ends: SimpleQueue[EngineFailed | None] = SimpleQueue()
        self._device = Device(engine, self._health, self._ends.put, new_followers)
        options = [*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)]
        threads = ThreadPoolExecutor(NUM_CALL_THREADS, "grpc")
        self._server = grpc.server(threads, interceptors=[Decoding()], options=options)
        self.port = 0

    def start(self) -> None:
        """Run a step, then serve; `port` is then the TCP port. Raises EngineFailed, or ConfigError for the address."""
        warm_up(Slots(self._device.engine, self._device.new_followers()))
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise ConfigError(f"the executor cannot listen at {self._address}: {error}") from error
        service = ExecutorService(self._device)
        executor_pb2_grpc.add_ExecutorServicer_to_server(service, self._server)
        self._health.start(self._server)
        self._server.start()

    def wait(self) -> None:
        """Until `interrupt`. Raises EngineFailed when a step has failed: the device is then in an unknown state."""
        if (error := self._ends.get()) is not None:
            raise error

    def interrupt(self) -> None:
        """End the wait; may be called by a signal's handler."""
        self._ends.put(None)

    def stop(self, grace_s: float = 0.0) -> None:
        """Refuse new calls, give open ones `grace_s`, and return when all have ended."""
        self._health.stop()
        self._server.stop(grace_s).wait()

    def wait_until_idle(self) -> None:
        """Return once nothing of a call that has ended is on the device; after `stop`, and where no step has failed."""
        with self._device.turn:
            pass


def warm_up(slots: Slots) -> None:
    """Run one step of one token, so that what is made at the first step is made before the first request."""
    sampling = SamplingParams(temperature=0.0)
    start = Start(
        slot=Slot(0),
        sequence_id=SequenceId("warm-up", 0),
        tokens=[0],
        prompt_len=1,
        computed=0,
        blocks=[DeviceBlock(0)],
        sampling=sampling,
    )
    result = slots.run(StepPlan(step=1, starts=[start], row_slots=[Slot(0)], row_tokens=[1]))
    for _, message in result.failures:
        raise EngineFailed(f"the first step failed: {message}")
