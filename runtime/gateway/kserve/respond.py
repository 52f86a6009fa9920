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
from jetway.runtime.gateway.events import EventStream, event_stream

from . import compression, generate_body, infer_body
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
    """An event for each reply; then the body ends. The first decides the status, unless a comment had to go before it.
    A client that reads nothing for `stall_limit_s` loses its request.
    """

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
            async with event_stream(send, {}, self._stall_limit_s) as events:
                await self._stream(events)
        except TimeoutError:
            id = self._envelope.request_id
            log.warning("%s: the client reads nothing; its request is cancelled", id, extra={"request_id": id})

    async def _stream(self, events: EventStream) -> None:
        accepted = False
        try:
            async with self._inference.replies(self._request, self._envelope) as replies:
                accepted = True
                async for reply in replies:
                    await events.write(generate_body.event(generate_body.format(self._request, reply)))
        except JetwayError as error:
            if not accepted and not events.started:
                raise
            await events.write(generate_body.event(generate_body.format_error(self._request, error)), _status(error))


def _status(error: JetwayError) -> int:
    """Of /generate and /generate_stream."""
    match error:
        case EngineFailed():
            return 400
        case Unimplemented():
            return 200
    return edge_of(error).kserve_http
