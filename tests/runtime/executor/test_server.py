"""The executor over a real gRPC socket: order, fencing, refusals, failures."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from jetway.runtime.errors import ConfigError, EngineFailed
from jetway.runtime.executor.health import StepHealth
from jetway.runtime.executor.server import NUM_CALL_THREADS, ExecutorServer, ExecutorService
from jetway.runtime.executor.simulated import SimulatedBehaviour
from jetway.runtime.executor.steps import Slots
from jetway.runtime.executor.wire import (
    EPOCH_KEY,
    plan_to_proto,
    result_from_proto,
    result_to_proto,
)
from jetway.runtime.executor.work import Device
from jetway.runtime.wire import description_from_proto
from jetway.scheduler.plan import StepPlan
from jetway.v1 import executor_pb2, executor_pb2_grpc
from tests.runtime.executor.driving import make_description, make_plan, make_simulated, make_start
from tests.runtime.executor.loopback import FailingEngine, GatedEngine, Session, first_plan, open_session, serving


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    """To a server of a small simulated engine."""
    with serving(make_simulated(), tmp_path) as channel:
        yield channel


# Prefill in chunks, decode, growth, a swap with reuse of slot and block in the plan that frees them.
PLANS = [
    make_plan(1, starts=[make_start(0, [1, 2, 3, 4, 5], [0, 1]), make_start(1, [9], [2])], rows=[(0, 4), (1, 1)]),
    make_plan(2, rows=[(0, 1), (1, 1)]),
    make_plan(3, copies_out=[(0, 3), (1, 4)], releases=[0], starts=[make_start(0, [7, 7], [0])], rows=[(0, 2), (1, 1)]),
    make_plan(4, grow=[(1, 9)], rows=[(1, 1)]),
    make_plan(5, releases=[0, 1]),
]


def test_describes_the_engine(channel: grpc.Channel) -> None:
    message = executor_pb2_grpc.ExecutorStub(channel).Describe(executor_pb2.DescribeRequest())
    assert description_from_proto(message) == make_description()


@pytest.mark.parametrize("num_ahead", [0, 1, 4])
def test_plans_give_what_slots_give_in_the_order_sent(channel: grpc.Channel, num_ahead: int) -> None:
    """However many plans are sent before the first result is read."""
    slots = Slots(make_simulated())
    carried = [result_from_proto(result_to_proto(slots.run(plan))) for plan in PLANS]
    expected = [replace(result, elapsed_s=0.0, copied_out_s=0.0, copied_in_s=0.0) for result in carried]
    session = open_session(channel, 1)
    for plan in PLANS[:num_ahead]:
        session.send(plan)
    results = []
    for plan in PLANS[num_ahead:]:
        session.send(plan)
        results.append(session.receive())
    results += [session.receive() for _ in range(num_ahead)]
    session.close()
    assert results == expected


def test_a_newer_epoch_ends_the_running_session_and_starts_empty(channel: grpc.Channel) -> None:
    old = open_session(channel, 3)
    old.run(first_plan())
    new = open_session(channel, 4)
    assert new.run(first_plan()).slots == [0]  # slot 0 is free: the old session's residents are gone
    assert old.end() == (grpc.StatusCode.ABORTED, "a session of the newer epoch 4 has begun")
    assert new.run(make_plan(2, rows=[(0, 1)])).slots == [0]
    new.close()


def test_a_fenced_session_ends_even_in_a_step_and_its_next_plan_does_not_run(tmp_path: Path) -> None:
    """The new session's first plan waits for the device; the old one's second plan is dropped."""
    engine = GatedEngine()
    with serving(engine, tmp_path) as channel:
        old = open_session(channel, 1)
        engine.gate.clear()
        engine.inside.clear()
        old.send(first_plan())
        old.send(make_plan(2, starts=[make_start(1, [5], [4])], rows=[(1, 1)]))
        assert engine.inside.wait(5)
        new = open_session(channel, 2)
        assert old.end()[0] is grpc.StatusCode.ABORTED
        engine.gate.set()
        assert new.run(first_plan()).slots == [0]
        assert new.run(make_plan(2, rows=[(0, 1)])).slots == [0]  # and its blocks are untouched
        new.close()


@pytest.mark.parametrize("epoch", [2, 3])
def test_an_epoch_that_is_not_newer_is_refused(channel: grpc.Channel, epoch: int) -> None:
    running = open_session(channel, 3)
    running.run(first_plan())
    message = f"epoch {epoch} is not newer than 3, the last that began"
    assert open_session(channel, epoch).end() == (grpc.StatusCode.FAILED_PRECONDITION, message)
    assert running.run(make_plan(2, rows=[(0, 1)])).slots == [0]
    running.close()


@pytest.mark.parametrize("metadata", [(), ((EPOCH_KEY, "-1"),), ((EPOCH_KEY, "new"),)], ids=repr)
def test_a_session_needs_an_epoch(channel: grpc.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
    code, message = Session(channel, *metadata).end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT and message.startswith("metadata jetway-epoch must be a number")


def poisoned(field: str) -> executor_pb2.StepPlan:
    """A plan no StepPlan can express."""
    message = plan_to_proto(first_plan())
    if field == "temperature":
        message.starts[0].sampling.temperature = -1.0
    else:
        message.copy_in_host.append(0)
    return message


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (make_plan(2, rows=[(0, 1)]), "step 2 follows step 0"),
        (make_plan(1, rows=[(0, 1)]), "the row of slot 0 is not resident"),
        (make_plan(1, starts=[make_start(0, [1] * 2_000_000, [0])]), "known tokens must be in [1, 40], not 2000000"),
        (poisoned("temperature"), "temperature must be in [0.0, 100.0], not -1.0"),
        (poisoned("copies"), "zip() argument 2 is shorter than argument 1"),
    ],
    ids=["step", "row", "longer-than-4-MiB", "temperature", "lengths"],
)
def test_an_illegal_plan_ends_the_session(
    channel: grpc.Channel, plan: StepPlan | executor_pb2.StepPlan, reason: str
) -> None:
    session = open_session(channel, 1)
    session.send(plan)
    code, message = session.end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT and reason in message
    next_session = open_session(channel, 2)
    assert next_session.run(first_plan()).slots == [0]
    next_session.close()


def test_a_step_that_fails_ends_the_session_with_the_engines_words(tmp_path: Path) -> None:
    with serving(FailingEngine(EngineFailed("the device is gone")), tmp_path) as channel:
        session = open_session(channel, 1)
        session.send(first_plan())
        assert session.end() == (grpc.StatusCode.INTERNAL, "the device is gone")


def test_after_a_failed_step_none_is_run_and_the_server_ends(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/executor.sock"
    server = ExecutorServer(FailingEngine(EngineFailed("the device is gone")), address)
    server.start()
    with grpc.insecure_channel(address) as channel:
        for epoch in (1, 2):
            session = open_session(channel, epoch)
            session.send(first_plan())
            assert session.end() == (grpc.StatusCode.INTERNAL, "the device is gone")
    with pytest.raises(EngineFailed, match="the device is gone"):
        server.wait()
    server.stop()


def test_an_interrupt_ends_the_wait() -> None:
    server = ExecutorServer(make_simulated(), "127.0.0.1:0")
    server.start()
    server.interrupt()
    server.wait()
    server.stop()


def test_a_fault_of_ours_is_logged_named_and_as_bad(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows what state the device is in: the executor is replaced."""
    with serving(FailingEngine(IndexError("out of range")), tmp_path) as channel:
        session = open_session(channel, 1)
        session.send(first_plan())
        assert session.end() == (
            grpc.StatusCode.INTERNAL,
            "a fault of ours in a step: IndexError: out of range",
        )
    assert [record.message for record in caplog.records] == ["a fault of ours in step 1"]


def test_a_scheduler_that_goes_away_leaves_the_executor_usable(channel: grpc.Channel) -> None:
    gone = open_session(channel, 1)
    gone.run(first_plan())
    gone.call.cancel()
    session = open_session(channel, 2)
    assert session.run(first_plan()).slots == [0]
    session.close()


class Aborted(Exception):
    pass


class FakeContext:
    """A call whose client takes results only when the test does, which no socket's buffers allow."""

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [(EPOCH_KEY, "1")]

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


def test_a_scheduler_that_stops_reading_is_cut_off() -> None:
    """After its first result it takes none: sixteen wait, and the next plan is not run."""
    first_read = threading.Event()

    def plans() -> Iterator[executor_pb2.StepPlan]:
        yield plan_to_proto(make_plan(1))
        first_read.wait()
        for step in range(2, 100):
            yield plan_to_proto(make_plan(step))

    service = ExecutorService(Device(make_simulated(), StepHealth(30.0, lambda: None), lambda error: None))
    results = service.Run(plans(), cast(grpc.ServicerContext, FakeContext()))
    steps = [next(results).step]
    first_read.set()
    for thread in threading.enumerate():
        if thread.name == "steps":
            thread.join()
    with pytest.raises(Aborted) as aborted:
        steps += [result.step for result in results]
    assert aborted.value.args == (grpc.StatusCode.RESOURCE_EXHAUSTED, "16 results wait to be read")


def test_an_engine_whose_first_step_fails_is_not_served(tmp_path: Path) -> None:
    engine = make_simulated(SimulatedBehaviour(fail_on=0))  # the warm-up's token
    server = ExecutorServer(engine, f"unix:{tmp_path}/executor.sock")
    with pytest.raises(EngineFailed, match="the first step failed: the prompt holds token 0"):
        server.start()
    assert not (tmp_path / "executor.sock").exists()


def test_an_address_that_cannot_be_bound_is_a_config_error(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/absent/executor.sock"
    with pytest.raises(ConfigError, match=f"the executor cannot listen at {address}"):
        ExecutorServer(make_simulated(), address).start()


def test_a_tcp_address_is_taken_once() -> None:
    first = ExecutorServer(make_simulated(), "127.0.0.1:0")
    first.start()
    with pytest.raises(ConfigError):
        ExecutorServer(make_simulated(), f"127.0.0.1:{first.port}").start()
    first.stop()


def test_watchers_of_its_health_keep_no_scheduler_out(channel: grpc.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2 * NUM_CALL_THREADS)]
    for watch in watches:
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    session = open_session(channel, 1)
    assert session.run(first_plan()).slots == [0]
    session.close()
    for watch in watches:
        watch.cancel()
