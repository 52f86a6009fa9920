import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import grpc
import pytest

from jetway.runtime.config import GatewayConfig
from jetway.runtime.directory import LifeRecord
from jetway.runtime.doors import Doors, open_doors
from jetway.runtime.gateway.app import Gateway
from jetway.v1.admin_pb2 import DrainRequest, StatusRequest, StatusResponse
from jetway.v1.admin_pb2_grpc import AdminStub
from jetway.v1.inference_pb2 import GenerateRequest
from jetway.v1.inference_pb2_grpc import InferenceStub
from jetway.v1.scheduler_pb2 import ClassStats, StatsResponse
from tests.support.fake_scheduler import FakeScheduler, accepted, answering
from tests.support.gateway import CONFIG


async def status(gateway: Gateway) -> StatusResponse:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        return await AdminStub(channel).Status(StatusRequest())


async def test_status_is_what_the_gateway_and_the_scheduler_know(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.stats = StatsResponse(num_running=3, classes=[ClassStats(name="batch", level=3)], blocked={3: "why"})
    response = await status(gateway)
    assert response.scheduler == scheduler.stats
    assert (response.version, response.model, response.num_live_requests) == (version("jetway-llm"), "tiny", 0)
    assert response.uptime_s > 0


async def test_live_requests_are_counted_while_they_live(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        call = InferenceStub(channel).Generate(GenerateRequest(text="a"))
        await scheduler.adds.get()
        assert (await status(gateway)).num_live_requests == 1
        call.cancel()
        await scheduler.cancels.get()
        scheduler.script = answering([65])
        await InferenceStub(channel).Generate(GenerateRequest(text="a"))
    assert (await status(gateway)).num_live_requests == 0


async def test_without_the_schedulers_figures_its_part_is_absent(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.stats = None
    response = await status(gateway)
    assert response.model == "tiny"
    assert not response.HasField("scheduler")


@dataclass
class Supervised:
    """A supervisor that counts how often it was told to drain, and two lives."""

    scheduler_address: str
    num_drains: int = 0

    def take_doors(self, config: GatewayConfig) -> Doors:
        return open_doors(config)

    def drain(self) -> None:
        self.num_drains += 1

    def lives(self) -> Sequence[LifeRecord]:
        executor = LifeRecord("executor", 3, pids=[70, 71], num_restarts=1, started_s=time.monotonic() - 60.0)
        return [executor, LifeRecord("gateway", 4, pids=[80], num_restarts=0, started_s=time.monotonic())]


@pytest.fixture
def surroundings(scheduler: FakeScheduler) -> Supervised:
    return Supervised(scheduler.address)


@pytest.fixture
async def supervised(engine_dir: Path, surroundings: Supervised) -> AsyncIterator[Gateway]:
    gateway = Gateway(CONFIG, engine_dir, None, surroundings)
    await gateway.start()
    await gateway.ready()
    yield gateway
    await gateway.stop(0.0)


async def test_status_shows_the_processes(supervised: Gateway) -> None:
    executor, gateway = (await status(supervised)).roles
    assert (executor.role, executor.pid, executor.epoch, executor.num_restarts) == ("executor", 70, 3, 1)
    assert [*executor.rank_pids] == [70, 71]
    assert not gateway.rank_pids
    assert round(executor.uptime_s) >= 60
    assert (gateway.role, gateway.pid, gateway.epoch, gateway.num_restarts) == ("gateway", 80, 4, 0)


async def test_a_drain_is_for_the_supervisor(supervised: Gateway, surroundings: Supervised) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{supervised.grpc_port}") as channel:
        await AdminStub(channel).Drain(DrainRequest())
    assert surroundings.num_drains == 1


async def test_a_gateway_alone_does_not_drain(gateway: Gateway) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="nobody supervises this gateway") as caught:
            await AdminStub(channel).Drain(DrainRequest())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
