"""Health says whether steps come to an end, not whether the socket answers."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from jetway.runtime.executor.health import StepHealth
from tests.runtime.executor.loopback import GatedEngine, first_plan, open_session, serving


@pytest.mark.parametrize("service", ["", "jetway.v1.Executor"])
def test_health_follows_the_progress_of_steps(tmp_path: Path, service: str) -> None:
    engine = GatedEngine()
    with serving(engine, tmp_path, step_limit_s=0.008) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(  # type: ignore[attr-defined]  # missing in the stubs
            health_pb2.HealthCheckRequest(service=service)
        )
        serving_status, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(watch).status == serving_status
        engine.gate.clear()
        session = open_session(channel, 1)
        session.send(first_plan())
        assert next(watch).status == not_serving
        engine.gate.set()
        assert next(watch).status == serving_status
        assert session.receive().slots == [0]
        session.close()
        watch.cancel()


def test_it_beats_unless_a_step_stays() -> None:
    beats: SimpleQueue[None] = SimpleQueue()
    health = StepHealth(0.008, lambda: beats.put(None))
    health.start(grpc.server(ThreadPoolExecutor(1)))
    beats.get()
    health.step_launched()
    health.step_launched()
    num_before = beats.qsize()
    for _ in range(5):
        time.sleep(0.01)  # five looks each
    assert beats.qsize() - num_before <= 2  # one under way as the step began, and the first that saw it
    health.step_done()
    num_before = beats.qsize()
    for _ in range(5):
        time.sleep(0.01)
    assert 0 < beats.qsize() - num_before <= 3  # the next step is another one, which then stays too
    health.step_done()
    while beats.qsize() < num_before + 5:  # bounded by the test's timeout
        time.sleep(0.001)
    health.stop()
