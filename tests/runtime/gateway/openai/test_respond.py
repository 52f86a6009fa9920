"""Whatever ends a response ends its call: disconnects at every stage, and clients that do not read."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from jetway.runtime.gateway.app import Gateway
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, sampled
from tests.support.gateway import running_gateway
from tests.support.http import connection, exchange, post, read_answer
from tests.support.tokenizers import words, write_engine

PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
STREAM: dict[str, Any] = {**CHAT, "stream": True}


async def assert_serves(gateway: Gateway, scheduler: FakeScheduler) -> None:
    """Another call runs to its end."""
    scheduler.script = answering([5], reason=LENGTH)
    assert (await exchange(gateway.http_port, post(PATH, CHAT))).status == 200


@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("stage", ["waiting", "accepted", "running"])
async def test_disconnect_cancels_the_call(
    gateway: Gateway, scheduler: FakeScheduler, body: dict[str, Any], stage: str
) -> None:
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(post(PATH, body))
        handle = (await scheduler.adds.get()).handle
        if stage != "waiting":
            scheduler.send(accepted(handle))
        if stage == "running":
            scheduler.send(sampled(handle, [5]))
        if stage != "waiting" and "stream" in body:
            await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

        assert await scheduler.cancels.get() == handle
    await assert_serves(gateway, scheduler)


@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
async def test_disconnect_is_seen_while_another_request_waits_behind_on_the_connection(
    gateway: Gateway, scheduler: FakeScheduler, body: dict[str, Any]
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    async with connection(gateway.http_port) as (_, writer):
        writer.write(post(PATH, body) + post(PATH, body))
        handle = (await scheduler.adds.get()).handle
        writer.close()
        await writer.wait_closed()

        assert await scheduler.cancels.get() == handle
    await assert_serves(gateway, scheduler)


async def test_requests_that_are_pipelined_are_answered_in_turn(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=LENGTH)
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(post(PATH, CHAT) * 12)
        for _ in range(12):
            assert (await read_answer(reader)).status == 200


async def test_status_is_sent_only_once_the_call_is_accepted(gateway: Gateway, scheduler: FakeScheduler) -> None:
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(post(PATH, STREAM))
        handle = (await scheduler.adds.get()).handle
        reading = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        await assert_serves(gateway, scheduler)
        assert not reading.done()

        scheduler.send(accepted(handle))
        assert (await reading).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_connection_serves_one_call_after_another(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=LENGTH)
    async with connection(gateway.http_port) as (reader, writer):
        for _ in range(3):
            writer.write(post(PATH, CHAT))
            assert (await read_answer(reader)).status == 200
    assert scheduler.cancels.empty()


async def test_client_that_reads_nothing_loses_its_own_call_only(tmp_path: Path, scheduler: FakeScheduler) -> None:
    tokenizer: Tokenizer = words("x" * (1 << 20))
    engine_dir = write_engine(tmp_path, tokenizer)
    async with (
        running_gateway(engine_dir, scheduler.address, stall_limit_s=0.2) as gateway,
        connection(gateway.http_port, receive_buffer_bytes=4096) as (_, writer),
    ):
        writer.write(post("/v1/completions", {"prompt": [0], "stream": True}))
        stalled = (await scheduler.adds.get()).handle
        scheduler.send(accepted(stalled))
        for _ in range(16):  # more than the kernel buffers, in deltas of their own
            scheduler.send(sampled(stalled, [0]))
            await asyncio.sleep(0)

        assert await scheduler.cancels.get() == stalled
        scheduler.script = answering([0], reason=LENGTH)
        assert (await exchange(gateway.http_port, post("/v1/completions", {"prompt": [0]}))).status == 200
