"""Health says whether steps come to an end, not whether the socket answers."""

from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

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
