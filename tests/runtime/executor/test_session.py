"""One session by itself: what no socket lets a test put in order."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import grpc

from jetway.runtime.executor.base import Engine, Launch, Sampled, StepBatch
from jetway.runtime.executor.health import StepHealth
from jetway.runtime.executor.session import End, Session
from jetway.runtime.executor.steps import Slots
from jetway.runtime.executor.wire import plan_to_proto
from jetway.runtime.executor.work import Device, Work
from jetway.v1 import executor_pb2
from tests.runtime.executor.driving import make_plan, make_simulated
from tests.runtime.executor.launching import LaunchingEngine
from tests.runtime.executor.loopback import first_plan

FENCED = End(grpc.StatusCode.ABORTED, "a newer one has begun")


class GatedDevice(LaunchingEngine):
    """Takes steps ahead, and does none until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.launches: SimpleQueue[None] = SimpleQueue()

    def launch(self, batch: StepBatch) -> Launch:
        self.launches.put(None)
        return super().launch(batch)

    def execute(self, batch: StepBatch) -> Sampled:
        self.gate.wait()
        return super().execute(batch)


def work_of(engine: Engine) -> Work:
    return Work(Device(engine, StepHealth(30.0, lambda: None), lambda error: None))


def join(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join()


def test_a_step_is_launched_before_its_predecessors_are_done() -> None:
    plans = [first_plan(), make_plan(2, rows=[(0, 1)]), make_plan(3, rows=[(0, 1)])]
    slots = Slots(make_simulated())
    expected = [slots.run(plan).tokens for plan in plans]
    engine = GatedDevice()
    session = Session(1, work_of(engine))
    session.run(map(plan_to_proto, plans))
    for _ in plans:
        engine.launches.get()
    engine.gate.set()
    *results, end = session.results()
    assert end == End(grpc.StatusCode.OK)
    assert [result.tokens for result in results if isinstance(result, executor_pb2.StepResult)] == expected


def test_a_fenced_session_launches_nothing_more_however_much_room_there_is() -> None:
    engine, fenced = GatedDevice(), threading.Event()

    def messages() -> Iterator[executor_pb2.StepPlan]:
        yield plan_to_proto(first_plan())
        fenced.wait()
        yield plan_to_proto(make_plan(2, rows=[(0, 1)]))

    session = Session(1, work_of(engine))
    session.run(messages())
    engine.launches.get()
    session.fence(FENCED)
    fenced.set()
    join("plans")
    engine.gate.set()
    join("steps")
    assert list(session.results()) == [FENCED]
    assert engine.launches.empty()
    assert not engine.asked, "what had been launched has left the device"
