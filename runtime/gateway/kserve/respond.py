"""Runs one request inside its HTTP response, so that whatever ends the response ends the request.

Errors from before anything is sent are raised, for the application to answer.
"""

import logging
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jetway.runtime.errors import EngineFailed, JetwayError, Unimplemented, edge_of
from jetway.runtime.gateway.access import Envelope
from jetway.runtime.gateway.disconnect import until_disconnect
from jetway.runtime.gateway.stall import StallLimit

from . import compression, generate_body, infer_body
from .errors import message_of
from .infer_body import InferBody
from .inference import Inference, InferRequest

log = logging.getLogger(__name__)


class InferResponse(Response):
    """The one reply, with raw tensors and compressed where the client asks for it."""

    def __init__(self, inference: Inference, envelope: Envelope, body: InferBody, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._inference = inference
        self._envelope = envelope
        self._infer_body = body
        self._encoding = compression.chosen(headers.get("accept-encoding"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._infer_body.request
        async with self._inference.replies(request, self._envelope) as replies:
            body, json_size = infer_body.format(request, await anext(replies), self._infer_body.binary)
        media_type, headers = "application/json", {}
        if json_size is not None:
            media_type, headers = "application/octet-stream", {"Inference-Header-Content-Length": str(json_size)}
        if self._encoding is not None:
            body = compression.compressed(body, self._encoding)
            headers["Content-Encoding"] = self._encoding
        await Response(body, headers=headers, media_type=media_type)(scope, receive, send)


class GenerateResponse(Response):
    """The one reply as an object. As in Triton, an error of the engine is a 400, and a stream that is asked for here an
    error with status 200.
    """

    def __init__(self, inference: Inference, envelope: Envelope, request: InferRequest) -> None:
        super().__init__()
        self._inference = inference
        self._envelope = envelope
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 200
        try:
            async with self._inference.replies(self._request, self._envelope) as replies:
                body = generate_body.format(self._request, await anext(replies))
        except (EngineFailed, Unimplemented) as error:
            body = generate_body.error(error.message)
            status = _status(error)
        await Response(body, status, media_type="application/json")(scope, receive, send)


class StreamResponse(Response):
    """An event for each reply; then the body ends. A client that reads nothing for `stall_limit_s` loses its request."""

    def __init__(self, inference: Inference, envelope: Envelope, request: InferRequest, stall_limit_s: float) -> None:
        super().__init__()
        self._inference = inference
        self._envelope = envelope
        self._request = request
        self._stall_limit_s = stall_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        try:
            async with StallLimit(self._stall_limit_s) as stall:
                await self._stream(_Events(send, stall))
        except TimeoutError:
            id = self._envelope.request_id
            log.warning("%s: the client reads nothing; its request is cancelled", id, extra={"request_id": id})

    async def _stream(self, events: "_Events") -> None:
        accepted = False
        try:
            async with self._inference.replies(self._request, self._envelope) as replies:
                accepted = True
                async for reply in replies:
                    await events.write(generate_body.format(self._request, reply))
        except JetwayError as error:
            if not accepted:
                raise
            await events.write(generate_body.error(message_of(error, self._request.id)), _status(error))
        await events.end()


class _Events:
    """Server-sent events. The head waits for the first of them, which decides the status."""

    def __init__(self, send: Send, stall: StallLimit) -> None:
        self._send = send
        self._stall = stall
        self._started = False

    async def write(self, data: str, status: int = 200) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._stall.wait(self._send({"type": "http.response.start", "status": status, "headers": headers}))
        body = f"data: {data}\n\n".encode()
        await self._stall.wait(self._send({"type": "http.response.body", "body": body, "more_body": True}))

    async def end(self) -> None:
        await self._stall.wait(self._send({"type": "http.response.body", "body": b"", "more_body": False}))


def _status(error: JetwayError) -> int:
    """Of /generate and /generate_stream."""
    match error:
        case EngineFailed():
            return 400
        case Unimplemented():
            return 200
    return edge_of(error).kserve_http
