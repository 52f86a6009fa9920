"""Server-sent events to one client."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.types import Send

from .stall import StallLimit

KEEP_ALIVE_S = 10.0  # proxies commonly cut a connection on which nothing is said for 30 to 60 s
_KEEP_ALIVE = ": keep-alive\n\n"  # a comment: clients skip it


class EventStream:
    """Writes events, and a comment where nothing else was said for a while. The head goes before the first of either."""

    def __init__(self, send: Send, headers: Mapping[str, str], stall: StallLimit) -> None:
        self._send = send
        self._headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
        self._stall = stall
        self._writing = asyncio.Lock()  # a stall limit takes one wait at a time
        self._silent = True
        self.started = False  # the head is sent

    async def start(self) -> None:
        """Send the head without waiting for an event."""
        async with self._writing:
            await self._start(200)

    async def write(self, events: str, status: int = 200) -> None:
        """`status` is the response's where these are the first."""
        self._silent = False
        async with self._writing:
            await self._start(status)
            await self._send_body(events.encode(), more=True)

    async def keep_alive(self, interval_s: float) -> None:
        """For ever: a comment after each interval in which nothing was said."""
        while True:
            await asyncio.sleep(interval_s)
            if self._silent and not self._writing.locked():
                await self.write(_KEEP_ALIVE)
            self._silent = True

    async def end(self) -> None:
        async with self._writing:
            await self._start(200)
            await self._send_body(b"", more=False)

    async def _start(self, status: int) -> None:
        if not self.started:
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
            await self._stall.wait(self._send({"type": "http.response.start", "status": status, "headers": headers}))
            self.started = True

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        await self._stall.wait(self._send({"type": "http.response.body", "body": body, "more_body": more}))


@asynccontextmanager
async def event_stream(send: Send, headers: Mapping[str, str], stall_limit_s: float) -> AsyncIterator[EventStream]:
    """A response, ended when the block is left without an error. Raises TimeoutError when the client reads nothing."""
    async with StallLimit(stall_limit_s) as stall:
        stream = EventStream(send, headers, stall)
        keeping_alive = asyncio.create_task(stream.keep_alive(KEEP_ALIVE_S))
        try:
            yield stream
        finally:
            keeping_alive.cancel()
            await asyncio.gather(keeping_alive, return_exceptions=True)
        await stream.end()
