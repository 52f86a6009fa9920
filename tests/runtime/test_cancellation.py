"""A client goes, at every state that its request can be in and over every edge: all pools are as empty as before."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.runtime.gateway.app import Gateway
from jetway.scheduler.classes import DEFAULT_CLASSES
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.scheduler import Scheduler
from jetway.scheduler.stats import Stats
from jetway.v1 import inference_pb2, inference_pb2_grpc
from tests.support.gateway import running_gateway
from tests.support.http import post
from tests.support.scheduling import ReferenceExecutor, make_scheduler
from tests.support.step_service import SteppedExecutor, serve_scheduler
from tests.support.tokenizers import byte_level, write_engine
from tests.support.triton import TRUE, client_of, request_stream, token_inputs

NUM_BLOCKS, NUM_HOST_BLOCKS = 40, 20


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request. Equal seeds are equal prompts."""

    seed: int = 0
    prompt_len: int = 6
    max_tokens: int = 30
    service_class: str = "batch"

    @property
    def prompt(self) -> list[int]:
        return [(self.seed * 31 + position * 7) % 250 for position in range(self.prompt_len)]

    @property
    def text(self) -> str:
        """About as long, for edges that take text."""
        return "".join(chr(ord("a") + token % 26) for token in self.prompt)


VICTIM = Asked()
OTHER = Asked(seed=1)
URGENT = Asked(seed=2, service_class="interactive")


@dataclass(frozen=True, kw_only=True)
class State:
    """How the victim gets there: what comes before it and after it, and what is seen when it has."""

    reached: Callable[[Stats, SteppedExecutor], bool]
    victim: Asked = VICTIM
    before: Sequence[Asked] = ()
    after: Sequence[Asked] = ()
    depth: int = 0
    limits: dict[str, Any] = field(default_factory=dict)


def preempted(stats: Stats, executor: SteppedExecutor) -> bool:
    return stats.counters.num_preemptions == 1 and stats.num_waiting == 1


STATES = {
    "waiting": State(
        before=[OTHER],
        limits={"max_num_seqs": 1},
        reached=lambda stats, _: (stats.num_running, stats.num_waiting) == (1, 1),
    ),
    "prefill": State(
        victim=Asked(prompt_len=60),
        limits={"max_num_batched_tokens": 16},
        reached=lambda stats, _: stats.counters.num_steps == 2 and not stats.counters.num_sampled_tokens,
    ),
    "decode": State(reached=lambda stats, _: stats.counters.num_sampled_tokens == 3),
    "preempted, with host blocks": State(
        after=[URGENT],
        limits={"max_num_seqs": 1, "preemption_mode": PreemptionMode.SWAP},
        reached=lambda stats, executor: preempted(stats, executor) and stats.num_free_host_blocks < NUM_HOST_BLOCKS,
    ),
    "preempted, without host blocks": State(
        after=[URGENT], limits={"max_num_seqs": 1, "preemption_mode": PreemptionMode.RECOMPUTE}, reached=preempted
    ),
    "waiting for another's block": State(
        victim=Asked(prompt_len=30),
        before=[Asked(prompt_len=30)],
        limits={"max_num_batched_tokens": 12},
        reached=lambda stats, _: "another sequence is computing its prefix" in stats.blocked.values(),
    ),
    "in flight at depth 1": State(
        depth=1,
        reached=lambda stats, executor: (
            stats.counters.num_sampled_tokens == 3 and executor.num_sent - executor.num_received == 2
        ),
    ),
    "finished": State(victim=Asked(max_tokens=2), reached=lambda stats, _: stats.counters.num_sampled_tokens == 2),
}


@dataclass(frozen=True)
class Stack:
    scheduler: Scheduler
    executor: SteppedExecutor
    gateway: Gateway

    async def until(self, reached: Callable[[Stats, SteppedExecutor], bool]) -> None:
        """Step until that is so."""
        while not reached(self.scheduler.stats(0.0), self.executor):
            await self.executor.step()
            await asyncio.sleep(0.001)

    async def until_live(self, num_sequences: int) -> None:
        """Without a step."""
        while (stats := self.scheduler.stats(0.0)).num_waiting + stats.num_running != num_sequences:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def stack(state: State, directory: Path) -> AsyncIterator[Stack]:
    limits = {"aged_slots": 0, "classes": DEFAULT_CLASSES, **state.limits}
    scheduler = make_scheduler(num_blocks=NUM_BLOCKS, num_host_blocks=NUM_HOST_BLOCKS, **limits)
    executor = SteppedExecutor(ReferenceExecutor(num_blocks=NUM_BLOCKS))
    executor.hold_after(0)
    async with (
        serve_scheduler(scheduler, executor, directory / "s.sock", depth=state.depth) as address,
        running_gateway(write_engine(directory, byte_level()), address) as gateway,
    ):
        yield Stack(scheduler, executor, gateway)


Leave = Callable[[], Awaitable[None]]


def grpc_request(asked: Asked) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(
        token_ids=inference_pb2.TokenIds(ids=asked.prompt),
        max_tokens=asked.max_tokens,
        service_class=asked.service_class,
    )


async def ask_grpc_stream(gateway: Gateway, asked: Asked) -> Leave:
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}")
    call = inference_pb2_grpc.InferenceStub(channel).GenerateStream(grpc_request(asked))
    reading = asyncio.ensure_future(_read_all(call))

    async def leave() -> None:
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await channel.close()

    return leave


async def _read_all(call: grpc.aio.UnaryStreamCall[Any, inference_pb2.GenerateDelta]) -> None:
    async for _ in call:
        pass


async def ask_grpc_unary(gateway: Gateway, asked: Asked) -> Leave:
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}")
    call = inference_pb2_grpc.InferenceStub(channel).Generate(grpc_request(asked))

    async def leave() -> None:
        call.cancel()
        await channel.close()

    return leave


async def _ask_http(gateway: Gateway, path: str, body: dict[str, Any], asked: Asked) -> Leave:
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(post(path, body, f"X-Jetway-Class: {asked.service_class}\r\n"))

    async def leave() -> None:
        writer.transport.abort()

    return leave


async def ask_sse(gateway: Gateway, asked: Asked) -> Leave:
    body = {"prompt": asked.prompt, "max_tokens": asked.max_tokens, "model": "tiny", "stream": True}
    return await _ask_http(gateway, "/v1/completions", body, asked)


async def ask_http_whole(gateway: Gateway, asked: Asked) -> Leave:
    body = {"prompt": asked.prompt, "max_tokens": asked.max_tokens, "model": "tiny"}
    return await _ask_http(gateway, "/v1/completions", body, asked)


async def ask_kserve_stream(gateway: Gateway, asked: Asked) -> Leave:
    client = client_of(gateway)
    level = next(each.level for each in DEFAULT_CLASSES if each.name == asked.service_class)
    inputs = token_inputs(asked.prompt, asked.max_tokens, streaming=TRUE)
    requests = [{"model_name": "tensorrt_llm", "inputs": inputs, "priority": level}]
    stream = client.stream_infer(request_stream(requests))
    reading = asyncio.ensure_future(_count(stream))

    async def leave() -> None:
        stream.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await client.close()

    return leave


async def _count(stream: AsyncIterator[object]) -> int:
    return len([each async for each in stream])


async def ask_generate_stream(gateway: Gateway, asked: Asked) -> Leave:
    body = {"text_input": asked.text, "max_tokens": asked.max_tokens, "stream": True}
    return await _ask_http(gateway, "/v2/models/ensemble/generate_stream", body, asked)


EDGES: dict[str, Callable[[Gateway, Asked], Awaitable[Leave]]] = {
    "gRPC stream": ask_grpc_stream,
    "gRPC unary": ask_grpc_unary,
    "SSE": ask_sse,
    "HTTP whole": ask_http_whole,
    "KServe stream": ask_kserve_stream,
    "generate_stream": ask_generate_stream,
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("state", STATES)
async def test_whoever_leaves_takes_everything_along(tmp_path: Path, state: str, edge: str) -> None:
    wanted = STATES[state]
    async with stack(wanted, tmp_path) as running:
        others = [await EDGES[edge](running.gateway, asked) for asked in wanted.before]
        await running.until_live(len(others))
        leave = await EDGES[edge](running.gateway, wanted.victim)
        await running.until_live(len(others) + 1)
        if wanted.after:
            await running.until(lambda stats, _: stats.counters.num_sampled_tokens == 5)
            others += [await ask_grpc_stream(running.gateway, asked) for asked in wanted.after]
            await running.until_live(len(others) + 1)
        await running.until(wanted.reached)

        await leave()
        for leave_other in others:
            await leave_other()

        await running.until_live(0)
        stats = running.scheduler.stats(0.0)
        assert (stats.num_free_device_blocks, stats.num_free_host_blocks) == (NUM_BLOCKS, NUM_HOST_BLOCKS)
        running.executor.go_on()
        await running.until(lambda _, executor: executor.num_sent == executor.num_received)
        assert running.executor.reference.residents == {}
        running.scheduler.check()
