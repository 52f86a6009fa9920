"""Clients that vanish, stop reading, or never finish speaking: their own calls end, and nothing of theirs stays."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from jetway.v1 import inference_pb2, inference_pb2_grpc
from tests.chaos import TIMES
from tests.chaos.load import Clients, Progress, grpc_address, make_requests, settled
from tests.support.processes import Running
from tests.support.serving import READY, process_of, serving
from tests.support.tokenizers import byte_level, write_engine

NUM_LEAVING = 300 * TIMES
MOST_GROWTH_BYTES = 64 << 20  # of a gateway's memory, from its first load to its last


@pytest.fixture
async def running(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """With the settings of the test's own, where it has some."""
    directory = tmp_path / "engine"
    directory.mkdir()
    settings = {"num_device_blocks": "64", "simulated_step_s": "0.001", **getattr(request, "param", {})}
    with serving(write_engine(directory, byte_level()), **settings) as running:
        running.wait_for(READY)
        yield running
        running.send_signal(signal.SIGTERM)
        ended = running.end()
        assert ended.status == 0, ended.out[-2000:]


@asynccontextmanager
async def nothing_stays(running: Running) -> AsyncIterator[Clients]:
    """Around what clients do wrong: others' answers, pools, descriptors and memory are as before."""
    clients = Clients(lambda: grpc_address(running), Progress())
    requests = make_requests(seed=3, count=8)
    expected = await clients.ask_all(requests)
    before = await settled(running)
    roles = [process_of(running, role) for role in ("executor", "scheduler", "gateway")]
    open_before = [role.num_fds() for role in roles]
    memory_before = [role.memory_info().rss for role in roles]
    yield clients
    assert await clients.ask_all(requests) == expected
    after = await settled(running)
    assert after.num_free_device_blocks == before.num_free_device_blocks
    assert after.num_free_host_blocks == before.num_free_host_blocks
    while any(role.num_fds() > count + 2 for role, count in zip(roles, open_before, strict=True)):
        await asyncio.sleep(0.01)
    growth = [role.memory_info().rss - size for role, size in zip(roles, memory_before, strict=True)]
    assert max(growth) < MOST_GROWTH_BYTES, growth
    assert all(role.status() != psutil.STATUS_ZOMBIE for role in roles)


def http_request(running: Running, **fields: object) -> bytes:
    body = json.dumps({"model": "tiny", "prompt": "hello", "stream": True, "ignore_eos": True, **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def http_port(running: Running) -> int:
    return int(running.facts("openai")[-1].rpartition(":")[2].partition("/")[0])


async def leave_after_a_chunk(running: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", http_port(running))
    writer.write(http_request(running, max_tokens=400))
    await reader.readuntil(b"data: ")
    writer.transport.abort()


async def leave_after_a_delta(running: Running) -> None:
    async with grpc.aio.insecure_channel(grpc_address(running)) as channel:
        request = inference_pb2.GenerateRequest(text="hello", max_tokens=400)
        call = inference_pb2_grpc.InferenceStub(channel).GenerateStream(request)
        await call.read()
        call.cancel()


@pytest.mark.timeout(120 * TIMES)
async def test_clients_that_leave_after_one_token(running: Running) -> None:
    """Over both edges, many at once: a normal request then finds the whole server."""
    async with nothing_stays(running):
        leaving = [leave_after_a_chunk, leave_after_a_delta]
        await asyncio.gather(*(leaving[number % 2](running) for number in range(NUM_LEAVING)))


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("running", [{"stall_limit_s": "0.5"}], indirect=True, ids=["impatient"])
async def test_clients_that_do_not_read(running: Running) -> None:
    """Each is cut after the stall limit; whoever reads is answered meanwhile."""
    async with nothing_stays(running) as clients:
        stalled = []
        for _ in range(6):
            connection = socket.create_connection(("127.0.0.1", http_port(running)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(4):  # pipelined: far more than the sockets hold
                connection.sendall(http_request(running, max_tokens=400, n=64, logprobs=5))
            stalled.append(connection)
        requests = make_requests(seed=4, count=8)
        assert len(await clients.ask_all(requests)) == len(requests)
        await settled(running)
        for connection in stalled:
            connection.close()


@pytest.mark.timeout(120 * TIMES)
async def test_connections_that_say_half_or_nothing(running: Running) -> None:
    async with nothing_stays(running) as clients:
        request = http_request(running, max_tokens=5)
        halves = []
        for said in [b"", b"PO", request[:40], request[:-3], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01"]:
            for port in (http_port(running), int(grpc_address(running).rpartition(":")[2])):
                connection = socket.create_connection(("127.0.0.1", port))
                connection.sendall(said)
                halves.append(connection)
        requests = make_requests(seed=5, count=8)
        assert len(await clients.ask_all(requests)) == len(requests)
        for connection in halves:
            connection.close()
