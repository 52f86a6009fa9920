"""Health says whether steps come to an end, not whether the socket answers."""

from pathlib import Path

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
    beats: list[str] = []
    health = StepHealth(30.0, lambda: beats.append("beat"))

    def num_beats_in_three_looks() -> int:
        beats.clear()
        for _ in range(3):
            health.look()
        return len(beats)

    assert num_beats_in_three_looks() == 3
    health.step_launched()
    health.step_launched()
    assert num_beats_in_three_looks() == 1  # the look that saw it first
    health.step_done()
    assert num_beats_in_three_looks() == 1  # the second is another one, which then stays too
    health.step_done()
    assert num_beats_in_three_looks() == 3
