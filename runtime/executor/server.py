"""The executor's end of the step boundary: one session at a time, its plans run by one thread, in order."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

import grpc

from jetway.runtime.errors import ConfigError, EngineFailed
from jetway.runtime.wire import CHANNEL_OPTIONS, description_to_proto
from jetway.scheduler.plan import DeviceBlock, Slot, Start, StepPlan, StepResult
from jetway.scheduler.request import SamplingParams, SequenceId
from jetway.v1 import common_pb2, executor_pb2, executor_pb2_grpc

from .base import Engine
from .counts import PlanError
from .health import StepHealth
from .steps import Slots
from .wire import EPOCH_KEY, plan_from_proto, result_to_proto

NUM_CALL_THREADS = 8  # each open call holds one
MAX_UNSENT_RESULTS = 16  # a scheduler is at most one plan ahead; one that sends and never reads is cut off

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _End:
    """How a session ended."""

    code: grpc.StatusCode
    details: str = ""


@dataclass(frozen=True, slots=True)
class _Session:
    """One Run call. Its results go out in order; after the first _End nothing does."""

    epoch: int
    results: SimpleQueue[executor_pb2.StepResult | _End] = field(default_factory=SimpleQueue)


class ExecutorService(executor_pb2_grpc.ExecutorServicer):
    """Describe and Run over one engine.

    A session has two threads: gRPC's sends results, ours runs plans. So a newer session ends it at once, whether it
    waits for a plan or for the device. `failed` is called after the session's end when a step has failed: the
    device is then in an unknown state.
    """

    def __init__(self, engine: Engine, health: StepHealth, failed: Callable[[EngineFailed], None]) -> None:
        self._engine = engine
        self._health = health
        self._failed = failed
        self._device = threading.Lock()  # held while a step runs
        self._failure: EngineFailed | None = None
        self._opening = threading.Lock()  # guards `_session`, the only one that may run plans
        self._session = _Session(epoch=-1)

    def Describe(
        self, request: executor_pb2.DescribeRequest, context: grpc.ServicerContext
    ) -> common_pb2.EngineDescription:
        return description_to_proto(self._engine.describe())

    def Run(
        self, request_iterator: Iterator[executor_pb2.StepPlan], context: grpc.ServicerContext
    ) -> Iterator[executor_pb2.StepResult]:
        session = self._open(context)
        threading.Thread(target=self._serve, args=(session, request_iterator), name="steps", daemon=True).start()
        while not isinstance(item := session.results.get(), _End):
            yield item
        if item.code is not grpc.StatusCode.OK:
            context.abort(item.code, item.details)

    def _open(self, context: grpc.ServicerContext) -> _Session:
        """Begin a session and end the running one. Aborts the call unless its epoch is newer."""
        value = dict(context.invocation_metadata()).get(EPOCH_KEY, "")
        if not str(value).isdecimal():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"metadata {EPOCH_KEY} must be a number, not {value!r}")
        session = _Session(epoch=int(value))
        with self._opening:
            running = self._session
            if session.epoch <= running.epoch:
                message = f"epoch {session.epoch} is not newer than {running.epoch}, the last that began"
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
            self._session = session
        running.results.put(_End(grpc.StatusCode.ABORTED, f"a session of the newer epoch {session.epoch} has begun"))
        return session

    def _serve(self, session: _Session, plans: Iterator[executor_pb2.StepPlan]) -> None:
        """Run the session's plans to its end, whatever that is."""
        try:
            end = self._run_plans(session, plans)
        except PlanError as error:
            end = _End(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except EngineFailed as error:
            session.results.put(_End(grpc.StatusCode.INTERNAL, error.message))
            self._failed(error)
            return
        except grpc.RpcError:  # the client is gone, or the call has ended
            end = _End(grpc.StatusCode.CANCELLED)
        except Exception as error:
            log.exception("a fault of ours ends the session of epoch %d", session.epoch)
            end = _End(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        session.results.put(end)

    def _run_plans(self, session: _Session, plans: Iterator[executor_pb2.StepPlan]) -> _End:
        slots = Slots(self._engine)
        for message in plans:
            if session.results.qsize() >= MAX_UNSENT_RESULTS:
                return _End(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_UNSENT_RESULTS} results wait to be read")
            plan = _decode(message)
            with self._device:
                if session is not self._session:
                    break
                result = self._step(slots, plan)
            session.results.put(result_to_proto(result))
        return _End(grpc.StatusCode.OK)

    def _step(self, slots: Slots, plan: StepPlan) -> StepResult:
        """Run one plan, with the device held. After a failure none is run any more."""
        if self._failure is not None:
            raise self._failure
        try:
            with self._health.step():
                return slots.run(plan)
        except EngineFailed as error:
            self._failure = error
            raise


def _decode(message: executor_pb2.StepPlan) -> StepPlan:
    try:
        return plan_from_proto(message)
    except ValueError as error:
        raise PlanError(str(error)) from error


class ExecutorServer:
    """Serves one engine at `address` ("unix:/path" or "host:port"), with health that follows its steps.

    Calls `beat` as long as they end: see StepHealth.
    """

    def __init__(
        self, engine: Engine, address: str, *, step_limit_s: float = 30.0, beat: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._address = address
        self._health = StepHealth(step_limit_s, beat)
        self._ends: SimpleQueue[EngineFailed | None] = SimpleQueue()
        options = [*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(NUM_CALL_THREADS, "grpc"), options=options)
        self.port = 0

    def start(self) -> None:
        """Run a step, then serve; `port` is then the TCP port. Raises EngineFailed, or ConfigError for the address."""
        warm_up(self._engine)
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise ConfigError(f"the executor cannot listen at {self._address}: {error}") from error
        service = ExecutorService(self._engine, self._health, self._ends.put)
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


def warm_up(engine: Engine) -> None:
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
    result = Slots(engine).run(StepPlan(step=1, starts=[start], row_slots=[Slot(0)], row_tokens=[1]))
    for _, message in result.failures:
        raise EngineFailed(f"the first step failed: {message}")
