from importlib.metadata import version

import grpc

from jetway.runtime.gateway.app import Gateway
from jetway.v1.admin_pb2 import StatusRequest, StatusResponse
from jetway.v1.admin_pb2_grpc import AdminStub
from jetway.v1.inference_pb2 import GenerateRequest
from jetway.v1.inference_pb2_grpc import InferenceStub
from jetway.v1.scheduler_pb2 import ClassStats, StatsResponse
from tests.support.fake_scheduler import FakeScheduler, accepted, answering


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
