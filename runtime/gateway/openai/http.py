"""What every path shares: request ids, bodies, and errors in the form that OpenAI's clients read."""

import logging
import uuid
from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from jetway.runtime.errors import Cancelled, Internal, InvalidArgument, JetwayError, edge_of
from jetway.runtime.gateway.access import MAX_DEADLINE_MS, Access, Envelope, deadline_s
from jetway.runtime.gateway.placement import Caller
from jetway.runtime.gateway.stall import StallLimit
from jetway.runtime.gateway.words import cut, is_plain, plain, quoted

from .errors import error_body, error_headers, error_object

log = logging.getLogger(__name__)

CLASS_HEADER, TENANT_HEADER, DEADLINE_HEADER = "X-Jetway-Class", "X-Jetway-Tenant", "X-Jetway-Deadline-Ms"
_MAX_DEADLINE_DIGITS = 12  # more are out of range, whatever they say
_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
}


def request_id(request: Request) -> str:
    """For the header x-request-id: the client's own, where it is plain, or one that is drawn once a request."""
    if not hasattr(request.state, "request_id"):
        given = request.headers.get("x-request-id", "")
        request.state.request_id = given if is_plain(given) else f"req-{uuid.uuid4().hex}"
    chosen: str = request.state.request_id
    return chosen


def caller(request: Request, access: Access) -> Caller:
    """Who sends it. Raises Unauthenticated, and InvalidArgument for a tenant that is not plain."""
    tenant = request.headers.get(TENANT_HEADER)
    return access.keys.caller(request.headers.get("authorization"), plain(tenant, TENANT_HEADER) if tenant else None)


def envelope(request: Request, access: Access, call_id: str) -> Envelope:
    """Raises Unauthenticated and InvalidArgument."""
    deadline = request.headers.get(DEADLINE_HEADER)
    return Envelope(
        request_id=call_id,
        caller=caller(request, access),
        placer=access.placer,
        service_class=request.headers.get(CLASS_HEADER),
        class_param=CLASS_HEADER,
        deadline_s=None if deadline is None else deadline_s(_milliseconds(deadline), DEADLINE_HEADER),
    )


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DEADLINE_DIGITS):
        raise InvalidArgument(
            f"{DEADLINE_HEADER} must be a whole number in [1, {MAX_DEADLINE_MS}], not {quoted(text)}",
            param=DEADLINE_HEADER,
        )
    return int(text)


def json_response(
    request: Request, body: str, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    headers = {"x-request-id": request_id(request), **(headers or {})}
    return Response(body, status_code, headers=headers, media_type="application/json")


def refuse_compressed(request: Request) -> None:
    """Raises HTTPException for a body that is not as it is."""
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise HTTPException(415, f"content-encoding {quoted(coding)} is not supported here; send the body as it is")


async def read_body(request: Request, limit_bytes: int, stall_limit_s: float) -> bytes:
    """As it comes. Raises HTTPException as soon as it is, or says that it will be, too large, or when it stops to come."""
    too_large = HTTPException(413, f"the body may have at most {limit_bytes} bytes")
    if int(request.headers.get("content-length", 0)) > limit_bytes:  # the server's parser took it for a number
        raise too_large
    body = bytearray()
    chunks = request.stream()
    try:
        async with StallLimit(stall_limit_s) as stall:
            while chunk := await stall.wait(anext(chunks)):  # the last is empty
                body += chunk
                if len(body) > limit_bytes:
                    raise too_large
    except TimeoutError:
        message = f"no more of the body came for {stall_limit_s:g} s"
        raise HTTPException(408, message, {"connection": "close"}) from None
    return bytes(body)


def install_error_handlers(app: FastAPI) -> None:
    """Errors of ours, of the framework's routing, and faults: each becomes an OpenAI error object."""
    app.add_exception_handler(JetwayError, _jetway_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _disconnect)
    app.add_exception_handler(Exception, _fault)


async def _jetway_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, JetwayError)
    return json_response(request, error_body(error), edge_of(error).http, error_headers(error))


async def _http_error(request: Request, error: Exception) -> Response:
    """No such path or method, or too large a body."""
    assert isinstance(error, HTTPException)
    where = cut(f"{request.method} {request.url.path}")
    messages = {404: f"{where}: no such path", 405: f"{where}: this path takes other methods"}
    body = error_object(
        messages.get(error.status_code, error.detail),
        "invalid_request_error",
        _CODES.get(error.status_code, "invalid_request"),
    )
    return json_response(request, body, error.status_code, error.headers)


async def _disconnect(request: Request, error: Exception) -> Response:
    """The client went away while it sent its body: nobody reads this."""
    return await _jetway_error(request, Cancelled("the client disconnected"))


async def _fault(request: Request, error: Exception) -> Response:
    """The framework raises the error again after this, and the server logs it."""
    return await _jetway_error(request, Internal(f"a fault of the gateway: {type(error).__name__}"))
