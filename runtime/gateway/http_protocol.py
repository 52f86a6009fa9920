"""HTTP/1.1 on uvicorn and httptools, where a client that pipelines requests can still be seen to leave."""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

_MOST_PIPELINED = 8  # requests that wait behind one; beyond that the connection is not read, so its end is not seen


class HttpProtocol(HttpToolsProtocol):
    """Uvicorn stops reading while a request waits behind another, and tells only the last one of a disconnect."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._open: list[RequestResponseCycle] = []

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._open = [cycle for cycle in self._open if not cycle.response_complete] + [self.cycle]
        if len(self.pipeline) <= _MOST_PIPELINED:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._open:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)
