"""One request to a Jetway gateway, from inside a Triton server: what is said, whatever carries it."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

CONNECT_TIMEOUT_S = 5.0
SILENCE_LIMIT_S = 30.0  # a gateway that is there is heard within 20, even of a request that waits
# TritonError's names of what the gateway calls errors.
CODES = {
    "INVALID_ARGUMENT": "INVALID_ARG",
    "UNAUTHENTICATED": "INVALID_ARG",
    "PERMISSION_DENIED": "INVALID_ARG",
    "NOT_FOUND": "NOT_FOUND",
    "RESOURCE_EXHAUSTED": "INVALID_ARG",  # a request larger than a message may be
    "UNIMPLEMENTED": "UNSUPPORTED",
    "UNAVAILABLE": "UNAVAILABLE",
    "CANCELLED": "CANCELLED",
    "INTERNAL": "INTERNAL",
}

Array = Any  # of numpy, of any element type


class Failed(Exception):
    """The request ends with this message and TritonError's code of this name."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Asked(NamedTuple):
    """A request. `parameters` are those that mean something to Jetway."""

    model: str
    request_id: str
    inputs: Mapping[str, Array]
    parameters: Mapping[str, Any]


class Said(NamedTuple):
    """One response; the last is final."""

    outputs: Mapping[str, Array]
    final: bool


class Connection(Protocol):
    """Carries one request, which it was made with. `cut` may come from any thread at any time, before `open` too."""

    def open(self) -> None:
        """Raises Failed."""

    def responses(self) -> Iterator[Said]:
        """What the gateway says, to the end. Raises Failed for an error, and where the connection is lost."""

    def cut(self) -> None:
        """End at once what is open, which cancels the request at the gateway."""

    def close(self) -> None: ...


class Transport(Protocol):
    """Knows where the gateway is, and what authorizes its requests.

    Every request gets a connection of its own, so that Jetway may be restarted, and the gateways of one address share
    the requests.
    """

    def connection(self, asked: Asked) -> Connection:
        """Not open yet; the arrays are not looked at any more. Raises Failed for what it cannot carry."""


class Exchange:
    """One request, which another thread may cancel."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()
        self._connection.cut()

    def responses(self) -> Iterator[Said]:
        """To the end. Raises Failed."""
        try:
            self._connection.open()
            if not self._cancelled.is_set():
                yield from self._connection.responses()
        except Failed:
            if not self._cancelled.is_set():
                raise
        if self._cancelled.is_set():
            raise Failed("Request cancelled by client", "CANCELLED")

    def close(self) -> None:
        """Once the responses have ended."""
        self._connection.close()


def lost(address: str, reason: object) -> Failed:
    return Failed(f"the connection to Jetway at {address} failed: {reason}", "UNAVAILABLE")
