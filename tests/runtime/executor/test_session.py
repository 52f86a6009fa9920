"""One session by itself: what no socket lets a test put in order."""

import threading
from collections.abc import Iterator

import grpc

from jetway.runtime.executor.base import Launch, Sampled, StepBatch
from jetway.runtime.executor.health import StepHealth
from jetway.runtime.executor.session import End, Session
from jetway.runtime.executor.wire import plan_to_proto
from jetway.runtime.executor.work import Device, Work
from jetway.v1 import executor_pb2
from tests.runtime.executor.driving import make_plan
from tests.runtime.executor.launching import LaunchingEngine
from tests.runtime.executor.loopback import first_plan

FENCED = End(grpc.StatusCode.ABORTED, "a newer one has begun")


class GatedDevice(LaunchingEngine):
    """Takes steps ahead, and does none until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.launched = threading.Event(), threading.Event()
        self.num_launched = 0

    def launch(self, batch: StepBatch) -> Launch:
        self.num_launched += 1
        self.launched.set()
        return super().launch(batch)

    def execute(self, batch: StepBatch) -> Sampled:
        self.gate.wait()
        return super().execute(batch)


def join(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join()


def test_a_fenced_session_launches_nothing_more_however_much_room_there_is() -> None:
    engine, fenced = GatedDevice(), threading.Event()

    def messages() -> Iterator[executor_pb2.StepPlan]:
        yield plan_to_proto(first_plan())
        fenced.wait()
        yield plan_to_proto(make_plan(2, rows=[(0, 1)]))

    session = Session(1)
    session.run(messages(), Work(Device(engine, StepHealth(30.0, lambda: None), lambda error: None)))
    engine.launched.wait()
    session.fence(FENCED)
    fenced.set()
    join("plans")
    engine.gate.set()
    join("steps")
    assert list(session.results()) == [FENCED]
    assert engine.num_launched == 1
    assert not engine.asked, "what had been launched has left the device"
