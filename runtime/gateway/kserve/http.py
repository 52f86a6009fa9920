"""The paths under /v2, with answers and errors as Triton writes them."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from jetway.runtime.config import GatewayConfig
from jetway.runtime.errors import Cancelled, Internal, InvalidArgument, JetwayError, Unavailable, Unimplemented, edge_of
from jetway.runtime.gateway.access import Envelope
from jetway.runtime.gateway.beside import beside_the_loop
from jetway.runtime.gateway.openai.errors import error_headers
from jetway.runtime.gateway.openai.http import caller, envelope, read_body, request_id
from jetway.runtime.gateway.openai.read import read_object
from jetway.runtime.gateway.words import is_plain, quoted

from . import describe, generate_body, infer_body
from .catalog import Model
from .compression import decompressed
from .edge import Edge
from .errors import NO_LOADING, message_of
from .respond import GenerateResponse, InferResponse, StreamResponse

_T = TypeVar("_T")

HEADER_SIZE = "inference-header-content-length"
_MAX_SIZE_DIGITS = 12  # more are out of range, whatever they say
_NOT_SERVED = ("systemsharedmemory", "cudasharedmemory", "trace", "logging")


def kserve_app(edge: Edge, config: GatewayConfig) -> ASGIApp:
    """An application of its own, so that its errors are Triton's. Health needs no API key."""
    paths = _Paths(edge, config)
    model = "/v2/models/{name}"
    per_model = [
        ("", paths.metadata, "GET"),
        ("/ready", paths.model_ready, "GET"),
        ("/config", paths.config, "GET"),
        ("/stats", paths.statistics, "GET"),
        ("/infer", paths.infer, "POST"),
        ("/generate", paths.generate, "POST"),
        ("/generate_stream", paths.generate_stream, "POST"),
    ]
    routes = [
        Route("/v2", paths.server, methods=["GET"]),
        Route("/v2/health/live", paths.live, methods=["GET"]),
        Route("/v2/health/ready", paths.ready, methods=["GET"]),
        Route("/v2/models/stats", paths.statistics, methods=["GET"]),
        Route("/v2/repository/index", paths.index, methods=["POST"]),
        Route("/v2/repository/models/{name}/{action:path}", paths.load, methods=["POST"]),
        *(Route(f"/v2/{name}{{rest:path}}", paths.not_served) for name in _NOT_SERVED),
        Route(f"{model}/trace/setting", paths.not_served, methods=["GET", "POST"]),
        *(
            Route(f"{model}{version}{path}", endpoint, methods=[method])
            for path, endpoint, method in per_model
            for version in ("", "/versions/{version}")
        ),
    ]
    handlers = {
        JetwayError: _jetway_error, HTTPException: _http_error, ClientDisconnect: _disconnect, Exception: _fault,
    }  # fmt: skip
    return Starlette(routes=routes, exception_handlers=handlers)


class _Paths:
    """One method a path. Errors are raised, for the application's handlers to write."""

    def __init__(self, edge: Edge, config: GatewayConfig) -> None:
        self._edge = edge
        self._config = config

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        return Response(status_code=200 if self._edge.is_ready() else 400)

    async def model_ready(self, request: Request) -> Response:
        if self._edge.is_model_ready(request.path_params["name"], request.path_params.get("version", "")):
            return Response()
        return _error("Model version not ready", 400)

    async def server(self, request: Request) -> Response:
        self._check_caller(request)
        return JSONResponse(describe.server())

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(describe.metadata(self._model(request)))

    async def config(self, request: Request) -> Response:
        model = self._model(request)
        return JSONResponse(self._edge.config(model.name, ""))

    async def statistics(self, request: Request) -> Response:
        """Of one model, or of all."""
        name = self._model(request).name if "name" in request.path_params else ""
        self._check_caller(request)
        return JSONResponse({"model_stats": self._edge.statistics(name, "")})

    async def index(self, request: Request) -> Response:
        self._check_caller(request)
        body = await read_body(request, self._config.max_request_bytes, self._config.stall_limit_s)
        options = read_object(body) if body else {}
        return JSONResponse(self._edge.index(only_ready=options.get("ready") is True))

    async def load(self, request: Request) -> Response:
        self._check_caller(request)
        raise Unavailable(NO_LOADING)

    async def not_served(self, request: Request) -> Response:
        raise Unimplemented(f"{request.url.path} is not served here")

    async def infer(self, request: Request) -> Response:
        parsed = await self._parsed(request, lambda model, body: infer_body.parse(model, body, _json_size(request)))
        return InferResponse(self._edge.inference, self._envelope(request, parsed.request.id), parsed, request.headers)

    async def generate(self, request: Request) -> Response:
        parsed = await self._parsed(request, partial(generate_body.parse, several=generate_body.SEVERAL))
        return GenerateResponse(self._edge.inference, self._envelope(request, parsed.id), parsed)

    async def generate_stream(self, request: Request) -> Response:
        parsed = await self._parsed(request, partial(generate_body.parse, several=None))
        call = self._envelope(request, parsed.id)
        return StreamResponse(self._edge.inference, call, parsed, self._config.stall_limit_s)

    async def _parsed(self, request: Request, parse: Callable[[Model, bytes], _T]) -> _T:
        """What `parse` makes of the body, of those who may call. Raises JetwayError and HTTPException."""
        self._check_caller(request)
        limit = self._config.max_request_bytes
        with self._edge.generator.refusals():
            model = self._find(request)
            sent = await read_body(request, limit, self._config.stall_limit_s)
            body = decompressed(sent, request.headers.get("content-encoding"), limit)
            return await beside_the_loop(lambda: parse(model, body), len(body))

    def _model(self, request: Request) -> Model:
        """Of the path, for who may call. Raises Unauthenticated, ModelNotFound and InvalidArgument."""
        self._check_caller(request)
        return self._find(request)

    def _find(self, request: Request) -> Model:
        return self._edge.catalog.find(request.path_params["name"], request.path_params.get("version", ""))

    def _check_caller(self, request: Request) -> None:
        """Raises Unauthenticated."""
        with self._edge.generator.refusals():
            caller(request, self._edge.access)

    def _envelope(self, request: Request, infer_id: str) -> Envelope:
        """From here on errors name the request by its own id."""
        request.state.infer_id = infer_id
        return envelope(request, self._edge.access, infer_id if is_plain(infer_id) else request_id(request))


def _json_size(request: Request) -> int | None:
    """How much of the body is JSON, where the header says that raw tensors follow. Raises InvalidArgument."""
    given = request.headers.get(HEADER_SIZE)
    if given is not None and not (given.isascii() and given.isdigit() and len(given) <= _MAX_SIZE_DIGITS):
        raise InvalidArgument(f"{HEADER_SIZE} must be a number of bytes, not {quoted(given)}")
    return None if given is None else int(given)


def _error(message: str, status: int) -> Response:
    return JSONResponse({"error": message}, status)


async def _jetway_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, JetwayError)
    message = message_of(error, getattr(request.state, "infer_id", ""))
    return JSONResponse({"error": message}, edge_of(error).kserve_http, error_headers(error))


async def _http_error(request: Request, error: Exception) -> Response:
    """No such path or method, or too large a body."""
    assert isinstance(error, HTTPException)
    return _error(error.detail, error.status_code)


async def _disconnect(request: Request, error: Exception) -> Response:
    """The client went away while it sent its body: nobody reads this."""
    return await _jetway_error(request, Cancelled("the client disconnected"))


async def _fault(request: Request, error: Exception) -> Response:
    """The framework raises the error again after this, and the server logs it."""
    return await _jetway_error(request, Internal(f"a fault of the gateway: {type(error).__name__}"))
