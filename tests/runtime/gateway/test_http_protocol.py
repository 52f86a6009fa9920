"""Connections that are not kind: endless heads, slow ones, and too many."""

import json
from pathlib import Path

import pytest

from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.http_protocol import MAX_HEAD_BYTES
from tests.support.fake_scheduler import LENGTH, FakeScheduler, answering
from tests.support.gateway import running_gateway
from tests.support.http import Connection, connection, exchange, post, read_answer, request

HEALTH = request("GET", "/health")
PIECE = b"a" * 4096
START = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


async def pour(client: Connection, start: bytes, piece: bytes) -> int:
    """Send pieces after the start until the server has had enough: how many bytes it took."""
    client.writer.write(start)
    num_bytes = 0
    while not client.reader.at_eof() and num_bytes < 8 << 20:
        client.writer.write(piece)
        try:
            await client.writer.drain()
        except ConnectionError:
            break
        num_bytes += len(piece)
    return num_bytes


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /", PIECE),
        (b"GET / HTTP/1.1\r\nx: ", PIECE),
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 1000),
        (START + b"0\r\n", b"x: y\r\n" * 1000),
        (START + b"0\r\nx: ", PIECE),
        (START + b"1;x=", PIECE),
    ],
    ids=["line", "header", "headers", "trailers", "trailer", "chunk extension"],
)
async def test_what_never_ends_is_cut(gateway: Gateway, scheduler: FakeScheduler, start: bytes, piece: bytes) -> None:
    async with connection(gateway.http_port) as client:
        assert await pour(client, start, piece) < 8 << 20
    scheduler.script = answering([5], reason=LENGTH)
    assert (await exchange(gateway.http_port, post("/v1/completions", {"prompt": "a"}))).status == 200


async def test_a_head_that_is_too_large_is_answered(gateway: Gateway) -> None:
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nx: " + b"a" * MAX_HEAD_BYTES)
        answer = await read_answer(reader)
        assert await reader.read() == b""

    assert (answer.status, answer.headers["connection"]) == (431, "close")
    assert json.loads(answer.body)["error"] == {
        "message": "the request's line and headers may have at most 65536 bytes",
        "type": "invalid_request_error",
        "param": None,
        "code": "request_header_fields_too_large",
    }


@pytest.mark.parametrize("start", [b"", b"GET /health HT", HEALTH + b"GET"], ids=["nothing", "half", "half of another"])
async def test_a_head_that_does_not_come_is_not_awaited_for_ever(
    engine_dir: Path, scheduler: FakeScheduler, start: bytes
) -> None:
    async with (
        running_gateway(engine_dir, scheduler.address, stall_limit_s=0.05) as gateway,
        connection(gateway.http_port) as (reader, writer),
    ):
        writer.write(start)
        if start.startswith(HEALTH):
            assert (await read_answer(reader)).status == 200
        answer = await read_answer(reader)
        assert await reader.read() == b""
    assert (answer.status, json.loads(answer.body)["error"]["message"]) == (408, "no request came within 0.05 s")


async def test_a_body_that_does_not_come_is_not_awaited_for_ever(engine_dir: Path, scheduler: FakeScheduler) -> None:
    async with (
        running_gateway(engine_dir, scheduler.address, stall_limit_s=0.05) as gateway,
        connection(gateway.http_port) as (reader, writer),
    ):
        writer.write(post("/v1/completions", {"prompt": "a"})[:-1])
        answer = await read_answer(reader)
        assert await reader.read() == b""
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (408, "request_timeout")
    assert error["message"] == "no more of the body came for 0.05 s"


async def test_one_connection_too_many_is_told_so_and_closed(engine_dir: Path, scheduler: FakeScheduler) -> None:
    async with (
        running_gateway(engine_dir, scheduler.address, max_connections=1) as gateway,
        connection(gateway.http_port) as (reader, writer),
    ):
        writer.write(HEALTH)
        assert (await read_answer(reader)).status == 200
        async with connection(gateway.http_port) as second:
            answer = await read_answer(second.reader)
            assert await second.reader.read() == b""
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "service_unavailable")
        writer.write(HEALTH)
        assert (await read_answer(reader)).status == 200
