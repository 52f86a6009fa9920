"""Requests as /generate_stream takes them, answers as server-sent events: on the standard library and numpy only."""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import SplitResult

import numpy as np

from .exchange import CODES, CONNECT_TIMEOUT_S, SILENCE_LIMIT_S, Array, Asked, Failed, Said, lost

FINAL_RESPONSE = "jetway_final_response"  # a parameter: each event says whether it is the last
ERROR_CODE = "jetway_error_code"  # and an error which it is
_COMMENT = b":"  # says that the gateway is there
# TritonError's names of what HTTP says.
_STATUSES = {
    400: "INVALID_ARG",
    401: "INVALID_ARG",
    403: "INVALID_ARG",
    404: "NOT_FOUND",
    413: "INVALID_ARG",
    501: "UNSUPPORTED",
    502: "UNAVAILABLE",  # of a proxy that does not reach the gateway
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}


class Output(NamedTuple):
    """What JSON does not say of an output: its elements' type, and how many dimensions stand before the last."""

    dtype: Any
    num_leading: int

    def array(self, value: Any) -> Array:
        """Clients of upstream index text once, and everything else as the model's configuration says."""
        values = value if isinstance(value, list) else [value]
        if self.dtype is np.object_:
            return np.array([each.encode() for each in values], dtype=np.object_)
        return np.array(values, self.dtype).reshape([1] * self.num_leading + [len(values)])


class HttpRequest(NamedTuple):
    path: str
    body: bytes
    headers: Mapping[str, str]


class HttpTransport:
    """To the gateway at an http or https URL, which may have a path; `outputs` are the model's."""

    def __init__(self, url: SplitResult, authorization: Mapping[str, str], outputs: Mapping[str, Output]) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", **authorization}
        self._outputs = outputs

    def connection(self, asked: Asked) -> "HttpConnection":
        path = f"{self._url.path.rstrip('/')}/v2/models/{asked.model}/generate_stream"
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.netloc, timeout=CONNECT_TIMEOUT_S)
        return HttpConnection(connection, HttpRequest(path, _body(asked), self._headers), self._outputs)


class HttpConnection:
    def __init__(
        self, connection: http.client.HTTPConnection, request: HttpRequest, outputs: Mapping[str, Output]
    ) -> None:
        self._connection = connection
        self._request = request
        self._outputs = outputs
        self._address = f"{connection.host}:{connection.port}"
        self._socket: socket.socket | None = None

    def open(self) -> None:
        try:
            self._connection.connect()
        except OSError as error:
            raise lost(self._address, error) from error
        self._socket = self._connection.sock
        self._socket.settimeout(SILENCE_LIMIT_S)

    def cut(self) -> None:
        if (connected := self._socket) is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    def responses(self) -> Iterator[Said]:
        try:
            self._connection.request("POST", *self._request)
            with self._connection.getresponse() as response:
                if response.status != 200:
                    raise self._failed(response)
                unread = b""
                while chunk := response.read1():
                    *events, unread = (unread + chunk).split(b"\n\n")
                    yield from (self._said(event) for event in events if not event.startswith(_COMMENT))
        except (OSError, http.client.HTTPException) as error:
            raise lost(self._address, str(error) or type(error).__name__) from error

    def _failed(self, response: http.client.HTTPResponse) -> Failed:
        """The gateway's own error, which may be an event; or that of whatever else answers at its address."""
        body = response.read()
        try:
            said = json.loads(body.removeprefix(b"data: "))
            message, code = str(said["error"]), said.get(ERROR_CODE, "")
        except (ValueError, KeyError, TypeError):
            shown = body[:200].decode(errors="replace")
            message, code = f"Jetway at {self._address} says {response.status} {response.reason}: {shown}", ""
        return Failed(message, CODES.get(code, _STATUSES.get(response.status, "INTERNAL")))

    def _said(self, event: bytes) -> Said:
        """Raises Failed for an error."""
        said: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
        if "error" in said:
            raise Failed(said["error"], CODES.get(said.get(ERROR_CODE, ""), "INTERNAL"))
        outputs = {name: self._outputs[name].array(value) for name, value in said.items() if name in self._outputs}
        return Said(outputs, final=said.get(FINAL_RESPONSE) is True)


def _body(asked: Asked) -> bytes:
    """A key for each tensor, its elements in a list. Raises Failed."""
    inputs = {name: _elements(name, array) for name, array in asked.inputs.items()}
    parameters = {**asked.parameters, FINAL_RESPONSE: True}
    return json.dumps({**inputs, "id": asked.request_id, "parameters": parameters}).encode()


def _elements(name: str, array: Array) -> list[Any]:
    """Raises Failed for text that JSON cannot carry, in the gateway's words."""
    try:
        return [each.decode() if isinstance(each, bytes) else each for each in array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        message = f"inference input '{name}' is not UTF-8: {error.reason} at byte {error.start}"
        raise Failed(message, "INVALID_ARG") from error
