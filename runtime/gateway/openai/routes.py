"""The HTTP application: what each path does."""

import json
import time

from fastapi import FastAPI, Request, Response

from jetway.runtime.config import GatewayConfig
from jetway.runtime.gateway.access import Access
from jetway.runtime.gateway.generate import Generator
from jetway.runtime.gateway.metrics.exposition import CONTENT_TYPE, Exposition

from .format import CHAT, COMPLETION
from .http import caller, envelope, install_error_handlers, json_response, read_body, refuse_compressed, request_id
from .logprobs import LogprobsFormat
from .openapi import document
from .parse import parse_chat, parse_completion
from .respond import CompletionResponse, Endpoint

_READ = ["GET", "HEAD"]


def openai_app(generator: Generator, exposition: Exposition, access: Access, config: GatewayConfig) -> FastAPI:
    """The OpenAI API under /v1, /health, /metrics, and /openapi.json, which describes them all; only /v1 needs a key."""
    app = FastAPI(title="Jetway", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    paths = _Paths(generator, exposition, access, config)
    app.add_api_route("/v1/chat/completions", paths.chat_completions, methods=["POST"])
    app.add_api_route("/v1/completions", paths.completions, methods=["POST"])
    app.add_api_route("/v1/models", paths.models, methods=_READ)
    app.add_api_route("/v1/models/{model_id:path}", paths.model, methods=_READ)
    app.add_api_route("/health", paths.health, methods=_READ)
    app.add_api_route("/health/ready", paths.ready, methods=_READ)
    app.add_api_route("/metrics", paths.metrics, methods=_READ)
    app.add_api_route("/openapi.json", paths.openapi, methods=_READ)
    install_error_handlers(app)
    return app


class _Paths:
    """One method a path. Errors are raised, for the application's handlers to write."""

    def __init__(self, generator: Generator, exposition: Exposition, access: Access, config: GatewayConfig) -> None:
        self._generator = generator
        self._exposition = exposition
        self._access = access
        self._config = config
        self._started = int(time.time())
        logprobs = LogprobsFormat(generator.vocabulary)
        self._chat = Endpoint(generator, parse_chat, CHAT, logprobs.chat, config.stall_limit_s)
        self._completion = Endpoint(generator, parse_completion, COMPLETION, logprobs.completion, config.stall_limit_s)

    async def chat_completions(self, request: Request) -> Response:
        return await self._complete(request, self._chat)

    async def completions(self, request: Request) -> Response:
        return await self._complete(request, self._completion)

    async def models(self, request: Request) -> Response:
        self._check_caller(request)
        return json_response(request, json.dumps({"object": "list", "data": [self._model()]}))

    async def model(self, request: Request, model_id: str) -> Response:
        self._check_caller(request)
        self._generator.check_model(model_id)
        return json_response(request, json.dumps(self._model()))

    async def health(self, request: Request) -> Response:
        """200: that it answers is the proof."""
        return json_response(request, '{"status":"ok"}')

    async def ready(self, request: Request) -> Response:
        """200 while what is asked is computed."""
        self._generator.check_ready()
        return json_response(request, '{"status":"ok"}')

    async def metrics(self, request: Request) -> Response:
        return Response(await self._exposition.render(), media_type=CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return json_response(request, json.dumps(document()))

    async def _complete(self, request: Request, endpoint: Endpoint) -> Response:
        chosen = request_id(request)
        with self._generator.refusals():
            call = envelope(request, self._access, endpoint.shape.id_prefix + chosen.removeprefix("req-"))
        refuse_compressed(request)
        body = await read_body(
            request, self._config.max_request_bytes, self._config.stall_limit_s
        )  # of those who may call
        return CompletionResponse(endpoint, call, body, {"x-request-id": chosen})

    def _check_caller(self, request: Request) -> None:
        with self._generator.refusals():
            caller(request, self._access)

    def _model(self) -> dict[str, object]:
        """`max_model_len` is what other servers call the longest sequence."""
        max_seq_len = self._generator.engine().max_seq_len
        return {
            "id": self._generator.model_name,
            "object": "model",
            "created": self._started,
            "owned_by": "jetway",
            "max_model_len": max_seq_len,
        }
