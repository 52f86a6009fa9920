"""The HTTP application: what each path does."""

import json
import time
import uuid
from collections.abc import Callable

from fastapi import FastAPI, Request, Response

from jetway.runtime.config import GatewayConfig
from jetway.runtime.gateway.generate import Generator

from .fields import Fields
from .format import CHAT, COMPLETION, Format, Shape
from .http import install_error_handlers, json_response, read_body, request_id
from .parse import HttpCall, parse_chat, parse_completion
from .respond import CompletionResponse


def openai_app(generator: Generator, config: GatewayConfig) -> FastAPI:
    """The OpenAI API under /v1, and /health."""
    app = FastAPI(title="Jetway", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    paths = _Paths(generator, config)
    app.add_api_route("/v1/chat/completions", paths.chat_completions, methods=["POST"])
    app.add_api_route("/v1/completions", paths.completions, methods=["POST"])
    app.add_api_route("/v1/models", paths.models, methods=["GET"])
    app.add_api_route("/v1/models/{model_id:path}", paths.model, methods=["GET"])
    app.add_api_route("/health", paths.health, methods=["GET"])
    install_error_handlers(app)
    return app


class _Paths:
    """One method a path. Errors are raised, for the application's handlers to write."""

    def __init__(self, generator: Generator, config: GatewayConfig) -> None:
        self._generator = generator
        self._config = config
        self._started = int(time.time())

    async def chat_completions(self, request: Request) -> Response:
        return await self._complete(request, CHAT, parse_chat)

    async def completions(self, request: Request) -> Response:
        return await self._complete(request, COMPLETION, parse_completion)

    async def models(self, request: Request) -> Response:
        return json_response(request, json.dumps({"object": "list", "data": [self._model()]}))

    async def model(self, request: Request, model_id: str) -> Response:
        self._generator.check_model(model_id)
        return json_response(request, json.dumps(self._model()))

    async def health(self, request: Request) -> Response:
        """200 while a call could start."""
        self._generator.engine()
        return json_response(request, '{"status":"ok"}')

    async def _complete(self, request: Request, shape: Shape, parse: Callable[[Fields, str], HttpCall]) -> Response:
        call_id = shape.id_prefix + uuid.uuid4().hex
        body = await read_body(request, self._config.max_request_bytes)
        call = parse(Fields.read(body), call_id)
        return CompletionResponse(
            call,
            Format(shape, call_id, self._generator.model_name, include_usage=call.include_usage),
            self._generator,
            stall_limit_s=self._config.stall_limit_s,
            headers={"x-request-id": request_id(request)},
        )

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
