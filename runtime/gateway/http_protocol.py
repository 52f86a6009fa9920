"""HTTP/1.1 on uvicorn and httptools, for clients that are not always kind: bounded, and seen to leave."""

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

MAX_HEAD_BYTES = 64 << 10  # of a request: its line and headers; or of a chunk's extension, or the trailers
_MOST_PIPELINED = 8  # requests that wait behind one; beyond that the connection is not read, so its end is not seen


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    max_connections: int
    head_timeout_s: float  # from a connection's or a head's first moment to the head's last byte


class HttpConfig(uvicorn.Config):
    """Uvicorn's, with what it has no words for."""

    def __init__(self, app: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(app, http=HttpProtocol, **options)
        self.connection_limits = limits


class HttpProtocol(HttpToolsProtocol):
    """Where uvicorn bounds neither connections nor heads, and stops reading while a request waits behind another, and
    tells only the last one of a disconnect.
    """

    def __init__(
        self,
        config: HttpConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.connection_limits
        self._open: list[RequestResponseCycle] = []
        self._num_idle_bytes = 0  # received since the parser last found something
        self._found_something = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows it
        if len(self.connections) > self._limits.max_connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open; try again")
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # refused
            return
        self._found_something = False
        super().data_received(data)
        self._num_idle_bytes = 0 if self._found_something else self._num_idle_bytes + len(data)
        if self._num_idle_bytes > MAX_HEAD_BYTES:
            message = f"the request's line and headers may have at most {MAX_HEAD_BYTES} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._found_something = True
        self._head_is_here()
        super().on_headers_complete()
        self._open = [cycle for cycle in self._open if not cycle.response_complete] + [self.cycle]
        if len(self.pipeline) <= _MOST_PIPELINED:
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        self._found_something = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._found_something = True
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        for cycle in self._open:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_is_here()
        self._head_timer = self.loop.call_later(self._limits.head_timeout_s / 2, self._head_is_slow)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_slow(self) -> None:
        """Twice: while the event loop itself stood still, nothing could be heard."""
        self._head_timer = self.loop.call_later(self._limits.head_timeout_s / 2, self._head_is_late)

    def _head_is_late(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"no request came within {self._limits.head_timeout_s:g} s")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Say so and close: there is no request yet that an application could answer."""
        self._head_is_here()
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": status.name.lower()}
        body = json.dumps({"error": error}).encode()
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
