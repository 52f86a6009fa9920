"""An executor on a real socket, a scheduler's end of a session, and engines that wait or fail."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

from jetway.runtime.executor.base import Engine, Sampled, StepBatch
from jetway.runtime.executor.leader import Followers, NoFollowers
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executor.simulated import PLAIN, SimulatedBehaviour, SimulatedEngine
from jetway.runtime.executor.wire import EPOCH_KEY, plan_to_proto, result_from_proto
from jetway.runtime.wire import CHANNEL_OPTIONS
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.v1 import executor_pb2, executor_pb2_grpc
from tests.runtime.executor.driving import make_description, make_plan, make_start


class GatedEngine(SimulatedEngine):
    """Stays in a step until the gate opens; `inside` is set meanwhile. The warm-up passes."""

    def __init__(self, behaviour: SimulatedBehaviour = PLAIN) -> None:
        super().__init__(make_description(), frozenset(), behaviour)
        self.gate, self.inside = threading.Event(), threading.Event()
        self.gate.set()

    def execute(self, batch: StepBatch) -> Sampled:
        self.inside.set()
        self.gate.wait()
        self.inside.clear()
        return super().execute(batch)


class FailingEngine(SimulatedEngine):
    """Raises `error` in every step but the warm-up's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(make_description())
        self._errors: list[Exception | None] = [None, error]

    def execute(self, batch: StepBatch) -> Sampled:
        if error := self._errors.pop(0):
            raise error
        return super().execute(batch)


class Session:
    """A scheduler's end of one Run call."""

    def __init__(self, channel: grpc.Channel, *metadata: tuple[str, str]) -> None:
        self._plans: SimpleQueue[executor_pb2.StepPlan | None] = SimpleQueue()
        self.call = executor_pb2_grpc.ExecutorStub(channel).Run(iter(self._plans.get, None), metadata=metadata)

    def send(self, plan: StepPlan | executor_pb2.StepPlan) -> None:
        self._plans.put(plan_to_proto(plan) if isinstance(plan, StepPlan) else plan)

    def receive(self) -> StepResult:
        """The next result, as if it had taken no time."""
        return replace(result_from_proto(next(self.call)), elapsed_s=0.0, copied_out_s=0.0, copied_in_s=0.0)

    def run(self, plan: StepPlan | executor_pb2.StepPlan) -> StepResult:
        self.send(plan)
        return self.receive()

    def end(self) -> tuple[grpc.StatusCode, str]:
        """How the server ended the call; results that come before are dropped."""
        with pytest.raises(grpc.RpcError):
            for _ in self.call:
                pass
        self._plans.put(None)
        return self.call.code(), self.call.details()

    def close(self) -> None:
        """End the session as a scheduler that is done does."""
        self._plans.put(None)
        assert list(self.call) == []


@contextmanager
def serving(
    engine: Engine,
    tmp_path: Path,
    *,
    step_limit_s: float = 30.0,
    new_followers: Callable[[], Followers] = NoFollowers,
) -> Iterator[grpc.Channel]:
    address = f"unix:{tmp_path}/executor.sock"
    server = ExecutorServer(engine, address, step_limit_s=step_limit_s, new_followers=new_followers)
    server.start()
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        yield channel
    server.stop()


def open_session(channel: grpc.Channel, epoch: int) -> Session:
    return Session(channel, (EPOCH_KEY, str(epoch)))


def first_plan(slot: int = 0) -> StepPlan:
    return make_plan(1, starts=[make_start(slot, [1, 2, 3], [4, 5])], rows=[(slot, 3)])
