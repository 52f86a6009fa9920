"""Requests over a bare socket: what clients' libraries do not let a test do."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def post(path: str, body: dict[str, Any], headers: str = "") -> bytes:
    return request("POST", path, json.dumps(body).encode(), headers)


@asynccontextmanager
async def connection(port: int, receive_buffer_bytes: int | None = None) -> AsyncIterator[Connection]:
    """Closed at the end, if the test has not closed it."""
    sock = socket.socket()
    if receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


async def read_head(reader: asyncio.StreamReader) -> Answer:
    """An answer up to its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
    return Answer(int(head[0].split()[1]), headers, b"")


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """One answer that has a content-length."""
    head = await read_head(reader)
    return head._replace(body=await reader.readexactly(int(head.headers["content-length"])))


async def exchange(port: int, message: bytes) -> Answer:
    async with connection(port) as (reader, writer):
        writer.write(message)
        return await read_answer(reader)


async def events_of(port: int, path: str, body: dict[str, Any], headers: str = "") -> list[str]:
    """The data of every event of a stream, as it stands on the wire."""
    async with connection(port) as (reader, writer):
        writer.write(post(path, body | {"stream": True}, f"connection: close\r\n{headers}"))
        await read_head(reader)
        lines = (await reader.read()).decode("ascii").splitlines()
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
