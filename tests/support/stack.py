"""The whole stack in one process over its real protocols: gateway, scheduler service, step loop and executor."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import grpc

from jetway.client import AsyncClient
from jetway.runtime.config import SchedulerConfig
from jetway.runtime.decoding import AsyncDecoding
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executor.simulated import SimulatedBehaviour, SimulatedEngine
from jetway.runtime.gateway.access import OPEN_ACCESS, Access
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.runtime.serve import make_scheduler
from jetway.runtime.service import SchedulerService
from jetway.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.runtime.executor.driving import make_description
from tests.support.gateway import running_gateway
from tests.support.tokenizers import EOS, byte_level, ids_of

TENANTS = ("", "acme", "other")
TOKENIZER = byte_level()
# Two of the longest sequences fill the pool, which eight share; of those displaced one fits the host pool.
ENGINE = replace(make_description(num_device_blocks=24, num_host_blocks=12), vocab_size=TOKENIZER.get_vocab_size())


class Stack(NamedTuple):
    clients: dict[str, AsyncClient]  # by tenant
    scheduler: "scheduler_pb2_grpc.SchedulerAsyncStub"
    gateway: Gateway
    address: str  # of the scheduler

    async def stats(self) -> scheduler_pb2.StatsResponse:
        return await self.scheduler.Stats(scheduler_pb2.StatsRequest())

    async def num_preemptions(self) -> int:
        return sum(each.count for each in (await self.stats()).preemptions)


@asynccontextmanager
async def stack(directory: Path, depth: int = 0, access: Access = OPEN_ACCESS) -> AsyncIterator[Stack]:
    """Over the engine directory, stepped `depth` plans ahead of the results, for whom `access` lets in."""
    behaviour = SimulatedBehaviour(eos_probability=0.03, verify_kv=True)
    executor = ExecutorServer(SimulatedEngine(ENGINE, frozenset(ids_of(TOKENIZER, EOS)), behaviour), "127.0.0.1:0")
    await asyncio.to_thread(executor.start)
    device = await ExecutorClient.connect(f"127.0.0.1:{executor.port}", epoch=1)
    scheduler = make_scheduler(SchedulerConfig(), device.engine)
    work = asyncio.Event()
    service = SchedulerService(scheduler, work, time.monotonic)
    server = grpc.aio.server(interceptors=[AsyncDecoding()])
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(service, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    loop = StepLoop(scheduler, service.publish, work, time.monotonic, FixedOverlap(depth))
    stepping = asyncio.create_task(loop.run(device))
    try:
        async with AsyncExitStack() as opened:
            gateway = await opened.enter_async_context(running_gateway(directory, address, access))
            clients = {
                tenant: await opened.enter_async_context(
                    AsyncClient(f"127.0.0.1:{gateway.grpc_port}", tenant=tenant or None)
                )
                for tenant in TENANTS
            }
            channel = await opened.enter_async_context(grpc.aio.insecure_channel(address))
            yield Stack(clients, scheduler_pb2_grpc.SchedulerStub(channel), gateway, address)
    finally:
        stepping.cancel()
        with suppress(asyncio.CancelledError):
            await stepping
        await server.stop(None)
        await device.close()
        await asyncio.to_thread(executor.stop)
