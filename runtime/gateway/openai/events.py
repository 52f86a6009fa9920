"""Server-sent events to one client."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.types import Send

from jetway.runtime.gateway.stall import StallLimit

KEEP_ALIVE_S = 10.0  # proxies commonly cut a connection on which nothing is said for 30 to 60 s
_KEEP_ALIVE = ": keep-alive\n\n"  # a comment: clients skip it


class EventStream:
    """Writes events, and a comment where nothing else was said for a while."""

    def __init__(self, send: Send, stall: StallLimit) -> None:
        self._send = send
        self._stall = stall
        self._silent = True

    async def write(self, events: str) -> None:
        self._silent = False
        await self._stall.wait(self._send({"type": "http.response.body", "body": events.encode(), "more_body": True}))

    async def keep_alive(self, interval_s: float) -> None:
        """For ever: a comment after each interval in which nothing was said."""
        while True:
            await asyncio.sleep(interval_s)
            if self._silent and not self._stall.waiting:
                await self.write(_KEEP_ALIVE)
            self._silent = True


@asynccontextmanager
async def event_stream(send: Send, headers: Mapping[str, str], stall_limit_s: float) -> AsyncIterator[EventStream]:
    """A response with status 200, ended when the block is left. Raises TimeoutError when the client reads nothing."""
    headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
    raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    async with StallLimit(stall_limit_s) as stall:
        await stall.wait(send({"type": "http.response.start", "status": 200, "headers": raw_headers}))
        stream = EventStream(send, stall)
        keeping_alive = asyncio.create_task(stream.keep_alive(KEEP_ALIVE_S))
        try:
            yield stream
        finally:
            keeping_alive.cancel()
            await asyncio.gather(keeping_alive, return_exceptions=True)
        await stall.wait(send({"type": "http.response.body", "body": b"", "more_body": False}))
