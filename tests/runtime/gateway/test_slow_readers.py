"""A client that reads slowly gets what has gathered as one delta, loses nothing, and costs no memory meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import psutil
import pytest

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import inference_pb2, inference_pb2_grpc
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, sampled
from tests.support.gateway import running_gateway
from tests.support.http import connection, exchange, post, read_head
from tests.support.tokenizers import words, write_engine

BIG, SMALL = 0, 1  # tokens: one fills what is between a gateway and its client by a good part, one does not
BIG_CHARS = 1 << 18
NUM_BIG = 32  # more than kernel, HTTP/2 window and write buffer hold
WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16), ("grpc.max_receive_message_length", -1)]
PROMPT = [5]


class Reader(NamedTuple):
    """A stream of one choice that is read when the test says so."""

    handle: int
    deltas: AsyncIterator[str]


@asynccontextmanager
async def by_http(gateway: Gateway, scheduler: FakeScheduler) -> AsyncIterator[Reader]:
    async with connection(gateway.http_port, receive_buffer_bytes=4096) as (reader, writer):
        writer.write(post("/v1/completions", {"prompt": PROMPT, "stream": True, "max_tokens": 9}))
        handle = (await scheduler.adds.get()).handle

        async def deltas() -> AsyncIterator[str]:
            scheduler.send(accepted(handle))
            await read_head(reader)
            async for line in _lines(reader):
                if line.startswith(b"data: "):  # and else a blank one, or the size of a chunk
                    yield json.loads(line.removeprefix(b"data: "))["choices"][0]["text"]

        yield Reader(handle, deltas())


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """To the end of the stream. A reader that looks for long lines itself would read ahead."""
    rest = b""
    while True:
        *lines, rest = (rest + await reader.read(1 << 16)).split(b"\n")
        for line in lines:
            if line == b"data: [DONE]":
                return
            yield line


@asynccontextmanager
async def by_grpc(gateway: Gateway, scheduler: FakeScheduler) -> AsyncIterator[Reader]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}", WINDOW) as channel:
        stub: Any = inference_pb2_grpc.InferenceStub(channel)
        request = inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds(ids=PROMPT), max_tokens=9)
        call = stub.GenerateStream(request)
        handle = (await scheduler.adds.get()).handle

        async def deltas() -> AsyncIterator[str]:
            scheduler.send(accepted(handle))
            while (delta := await call.read()) is not grpc.aio.EOF:
                yield delta.text

        yield Reader(handle, deltas())
        call.cancel()


@pytest.fixture
async def gateway(tmp_path: Path, scheduler: FakeScheduler) -> AsyncIterator[Gateway]:
    async with running_gateway(
        write_engine(tmp_path, words("x" * BIG_CHARS, "y", "z", "z", "z", "z")), scheduler.address
    ) as gateway:
        yield gateway


async def heard_everything(gateway: Gateway, scheduler: FakeScheduler) -> None:
    """Return once the gateway has all that the scheduler has said: another call's answer came after it."""
    scheduler.script = answering([SMALL], reason=LENGTH)
    assert (await exchange(gateway.http_port, post("/v1/completions", {"prompt": PROMPT}))).status == 200
    await scheduler.adds.get()


async def fill(gateway: Gateway, scheduler: FakeScheduler, handle: int, deltas: AsyncIterator[str]) -> None:
    """Read one token's delta, then none of a token after the other, until no more fits between gateway and client."""
    scheduler.send(sampled(handle, [SMALL]))
    assert await anext(deltas) == "y"
    for _ in range(NUM_BIG):
        scheduler.send(sampled(handle, [BIG]))
        await heard_everything(gateway, scheduler)


@pytest.mark.parametrize("edge", [by_http, by_grpc], ids=["http", "grpc"])
async def test_what_gathers_while_a_client_does_not_read_is_one_delta(
    gateway: Gateway, scheduler: FakeScheduler, edge: Any
) -> None:
    async with edge(gateway, scheduler) as (handle, deltas):
        await fill(gateway, scheduler, handle, deltas)
        for _ in range(500):
            scheduler.send(sampled(handle, [SMALL]))
        scheduler.send(sampled(handle, [SMALL], LENGTH))
        await heard_everything(gateway, scheduler)

        texts = [text async for text in deltas]

    assert "".join(texts) == "x" * BIG_CHARS * NUM_BIG + "y" * 501
    assert len([text for text in texts if text]) <= NUM_BIG + 1
    assert max(text.count("y") for text in texts) == 501


@pytest.mark.parametrize("edge", [by_http, by_grpc], ids=["http", "grpc"])
async def test_what_gathers_takes_no_memory_to_speak_of(gateway: Gateway, scheduler: FakeScheduler, edge: Any) -> None:
    async with edge(gateway, scheduler) as (handle, deltas):
        await fill(gateway, scheduler, handle, deltas)
        before = psutil.Process().memory_info().rss

        for _ in range(256):  # 64 MiB of text
            scheduler.send(sampled(handle, [BIG]))
        await heard_everything(gateway, scheduler)

        assert psutil.Process().memory_info().rss - before < 24 << 20
