"""The whole stack over its real protocols: what runs beside a request never changes its answer."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from jetway.client import AsyncClient, Completion
from jetway.runtime.config import SchedulerConfig
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executor.simulated import SimulatedBehaviour, SimulatedEngine
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.runtime.serve import make_scheduler
from jetway.runtime.service import SchedulerService
from jetway.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.runtime.executor.driving import make_description
from tests.support.gateway import running_gateway
from tests.support.tokenizers import EOS, byte_level, ids_of, write_engine

NUM_REQUESTS = 100
TENANTS = ("", "acme", "other")
TOKENIZER = byte_level()
# Two of the longest sequences fill the pool, which eight share; of those displaced one fits the host pool.
ENGINE = replace(make_description(num_device_blocks=24, num_host_blocks=12), vocab_size=TOKENIZER.get_vocab_size())


class Asked(NamedTuple):
    tenant: str
    params: dict[str, Any]


def random_request(rng: random.Random) -> Asked:
    """Of at most 40 tokens, which is the longest sequence; half of them share their first tokens with others."""
    prefix = [random.Random(rng.randrange(3)).randrange(ENGINE.vocab_size) for _ in range(rng.choice((0, 0, 4, 8, 13)))]
    own = [rng.randrange(ENGINE.vocab_size) for _ in range(rng.randint(1, 10))]
    max_tokens = rng.randint(1, 16)
    params: dict[str, Any] = {
        "token_ids": prefix + own,
        "n": rng.choice((1, 1, 1, 2, 3)),
        "max_tokens": max_tokens,
        "seed": rng.randrange(2**64),
        "temperature": rng.choice((0.0, 0.7, 1.0, 2.0)),
        "top_k": rng.choice((0, 1, 5)),
        "top_p": rng.choice((1.0, 0.9, 0.25)),
        "min_p": rng.choice((0.0, 0.1)),
        "repetition_penalty": rng.choice((1.0, 1.5, 0.01)),
        "presence_penalty": rng.uniform(-2, 2),
        "min_tokens": min(rng.choice((0, 3)), max_tokens),
        "ignore_eos": rng.choice((True, False)),
        "stop": rng.choice(((), ("e", "Z"), tuple("abcdefgh"))),
        "stop_token_ids": rng.choice(((), tuple(rng.sample(range(ENGINE.vocab_size), 20)))),
        "priority": rng.choice((-2, -1, 0, 0, 1, 5)),
    }
    return Asked(rng.choice(TENANTS), params)


class Stack(NamedTuple):
    clients: dict[str, AsyncClient]  # by tenant
    scheduler: "scheduler_pb2_grpc.SchedulerAsyncStub"

    async def generate(self, asked: Asked) -> Completion:
        return await self.clients[asked.tenant].generate(**asked.params)

    async def num_preemptions(self) -> int:
        stats = await self.scheduler.Stats(scheduler_pb2.StatsRequest())
        return sum(each.count for each in stats.preemptions)


@asynccontextmanager
async def stack(directory: Path, depth: int) -> AsyncIterator[Stack]:
    behaviour = SimulatedBehaviour(eos_probability=0.03, verify_kv=True)
    executor = ExecutorServer(SimulatedEngine(ENGINE, frozenset(ids_of(TOKENIZER, EOS)), behaviour), "127.0.0.1:0")
    await asyncio.to_thread(executor.start)
    device = await ExecutorClient.connect(f"127.0.0.1:{executor.port}", epoch=1)
    scheduler = make_scheduler(SchedulerConfig(), device.engine)
    work = asyncio.Event()
    service = SchedulerService(scheduler, work, time.monotonic)
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(service, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    loop = StepLoop(scheduler, service.publish, work, time.monotonic, FixedOverlap(depth))
    stepping = asyncio.create_task(loop.run(device))
    try:
        async with AsyncExitStack() as opened:
            gateway = await opened.enter_async_context(running_gateway(directory, address))
            clients = {
                tenant: await opened.enter_async_context(
                    AsyncClient(f"127.0.0.1:{gateway.grpc_port}", tenant=tenant or None)
                )
                for tenant in TENANTS
            }
            channel = await opened.enter_async_context(grpc.aio.insecure_channel(address))
            yield Stack(clients, scheduler_pb2_grpc.SchedulerStub(channel))
    finally:
        stepping.cancel()
        with suppress(asyncio.CancelledError):
            await stepping
        await server.stop(None)
        await device.close()
        await asyncio.to_thread(executor.stop)


@pytest.mark.parametrize(("seed", "depth"), [(1, 0), (2, 1)])
async def test_requests_together_answer_as_one_at_a_time(tmp_path: Path, seed: int, depth: int) -> None:
    """Whether or not plans go out before the results of those before them."""
    rng = random.Random(seed)
    requests = [random_request(rng) for _ in range(NUM_REQUESTS)]
    engine = write_engine(tmp_path, TOKENIZER)

    async with stack(engine, 0) as running:
        alone = [(await running.generate(asked)).choices for asked in requests]
        assert await running.num_preemptions() == 0
    async with stack(engine, depth) as running:
        together = await asyncio.gather(*(running.generate(asked) for asked in requests))
        assert await running.num_preemptions() > 0

    assert [completion.choices for completion in together] == alone
    assert {choice.finish_reason for choices in alone for choice in choices} == {"stop", "length"}
