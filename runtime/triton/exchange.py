"""One request to a Jetway gateway, from inside a Triton server: on the standard library only."""

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

API_KEY_VARIABLE = "JETWAY_API_KEY"
CONNECT_TIMEOUT_S = 5.0

# TritonError's names of what HTTP says.
_CODES = {
    400: "INVALID_ARG",
    401: "INVALID_ARG",
    403: "INVALID_ARG",
    404: "NOT_FOUND",
    501: "UNSUPPORTED",
    503: "UNAVAILABLE",
}


class Failed(Exception):
    """The request ends with this message and TritonError's code of this name."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Exchange:
    """One request to the gateway. `cancel`, from another thread, closes its connection, which cancels it there too."""

    def __init__(self, scheme: str, address: str) -> None:
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        self._address = address
        self._connection = kind(address, timeout=CONNECT_TIMEOUT_S)
        self._socket: socket.socket | None = None
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()
        if (connected := self._socket) is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def events(self, path: str, body: bytes) -> Iterator[Mapping[str, Any]]:
        """What the gateway says, to the end. Raises Failed."""
        try:
            yield from self._ask(path, body)
        except (OSError, http.client.HTTPException) as error:
            if not self._cancelled.is_set():
                message = f"the connection to Jetway at {self._address} failed: {error or type(error).__name__}"
                raise Failed(message, "UNAVAILABLE") from error
        finally:
            self._connection.close()
        if self._cancelled.is_set():
            raise Failed("Request cancelled by client", "CANCELLED")

    def _ask(self, path: str, body: bytes) -> Iterator[Mapping[str, Any]]:
        self._connection.connect()
        self._socket = self._connection.sock
        self._socket.settimeout(None)  # a request may wait its turn
        if self._cancelled.is_set():
            return
        self._connection.request("POST", path, body, _headers())
        with self._connection.getresponse() as response:
            if response.status != 200:
                raise Failed(_message(response.read()), _CODES.get(response.status, "INTERNAL"))
            unread = b""
            while chunk := response.read1():
                *events, unread = (unread + chunk).split(b"\n\n")
                yield from map(_said, events)


def _headers() -> dict[str, str]:
    key = os.environ.get(API_KEY_VARIABLE)
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _said(event: bytes) -> dict[str, Any]:
    """Raises Failed for an error."""
    said: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    if "error" in said:
        raise Failed(said["error"], "INTERNAL")
    return said


def _message(body: bytes) -> str:
    """Of an error, which may be an event."""
    try:
        return str(json.loads(body.removeprefix(b"data: "))["error"])
    except (ValueError, KeyError):
        return body[:200].decode(errors="replace")
