"""The HTTP API as an OpenAPI document, made from the bodies that the parser reads and from the table of errors."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from jetway.runtime.errors import EDGES, Unimplemented
from jetway.runtime.gateway.access import MAX_DEADLINE_MS
from jetway.runtime.gateway.words import MAX_NAME_CHARS

from . import responses
from .http import CLASS_HEADER, DEADLINE_HEADER, TENANT_HEADER
from .requests import CallBody, ChatBody, CompletionBody
from .unsupported import REFUSED

Document = dict[str, Any]

_MODELS: tuple[type[BaseModel], ...] = (
    ChatBody, CompletionBody,
    responses.ChatCompletion, responses.ChatChunk, responses.TextCompletion, responses.TextChunk,
    responses.Model, responses.ModelList, responses.Health, responses.Error,
)  # fmt: skip
_MODEL_ID = {"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}

_HEADERS = [
    {"name": name, "in": "header", "description": description, "schema": schema}
    for name, description, schema in (
        (CLASS_HEADER, "The service class, by its name.", {"type": "string"}),
        (
            TENANT_HEADER,
            "Whom the call is counted to, where the server has no API keys.",
            {"type": "string", "pattern": f"^[!-~]{{0,{MAX_NAME_CHARS}}}$"},
        ),
        (
            DEADLINE_HEADER,
            "Milliseconds after which the call ends with 504.",
            {"type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_MS},
        ),
    )
]

_HTTP_ONLY = {
    408: "The body stopped to come.",
    413: "The body is too large.",
    415: "The body is compressed.",
}


@cache
def document() -> Document:
    chat = _post("A chat's answer.", ChatBody, responses.ChatCompletion, responses.ChatChunk)
    completion = _post("A text's continuation.", CompletionBody, responses.TextCompletion, responses.TextChunk)
    models = _get("What is served.", _json(responses.ModelList), failing=(503,))
    model = _get("One model.", _json(responses.Model), failing=(404, 503))
    metrics = _get("Figures for Prometheus.", _content("text/plain", {"type": "string"}))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Jetway", "version": version("jetway-llm")},
        "paths": {
            "/v1/chat/completions": {"post": chat},
            "/v1/completions": {"post": completion},
            "/v1/models": {"get": models},
            "/v1/models/{model_id}": {"get": model, "parameters": [_MODEL_ID]},
            "/health": {"get": _get("200 while the gateway lives.", _json(responses.Health))},
            "/health/ready": {
                "get": _get("200 while what is asked is computed.", _json(responses.Health), failing=(503,))
            },
            "/metrics": {"get": metrics},
            "/openapi.json": {"get": _get("This document.", _content("application/json", {"type": "object"}))},
        },
        "components": {"schemas": _schemas()},
    }


def _post(summary: str, body: type[CallBody], whole: type[BaseModel], chunk: type[BaseModel]) -> Document:
    statuses = {*_HTTP_ONLY} | {
        edge.http for cls, edge in EDGES.items() if cls is not Unimplemented
    }  # of other protocols
    return {
        "summary": summary,
        "parameters": _HEADERS,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {"200": _response("The answer.", _json(whole) | _events(chunk))} | _errors(statuses),
    }


def _events(chunk: type[BaseModel]) -> Document:
    """What a stream says. Not the schema of the data: OpenAPI cannot say that the last of them is no JSON."""
    data = {"type": "string", "description": f"JSON of a {chunk.__name__} or of an Error; of the last event, [DONE]."}
    event = {"type": "object", "required": ["data"], "properties": {"data": data}}
    return {"text/event-stream": {"itemSchema": event}}


def _get(summary: str, content: Document, failing: Iterable[int] = ()) -> Document:
    return {"summary": summary, "responses": {"200": _response(summary, content)} | _errors(failing)}


def _errors(statuses: Iterable[int]) -> Document:
    """What each status can mean."""
    meanings = {status: [meaning] for status, meaning in _HTTP_ONLY.items()}
    for cls, edge in EDGES.items():
        meanings.setdefault(edge.http, []).append(cls.__doc__ or "")
    return {str(status): _response(" ".join(meanings[status]), _json(responses.Error)) for status in sorted(statuses)}


def _response(description: str, content: Document) -> Document:
    return {"description": description, "content": content}


def _json(model: type[BaseModel]) -> Document:
    return _content("application/json", {"$ref": f"#/components/schemas/{model.__name__}"})


def _content(media_type: str, schema: Document) -> Document:
    return {media_type: {"schema": schema}}


def _schemas() -> Document:
    _, schema = models_json_schema(
        [(model, "validation") for model in _MODELS],
        ref_template="#/components/schemas/{model}",
        schema_generator=_Untitled,
    )
    schemas: Document = schema["$defs"]
    refused = {
        name: {"enum": [*neutral, None], "description": "Not supported: only values that ask for nothing."}
        for name, neutral in REFUSED.items()
    }
    for body in (ChatBody, CompletionBody):
        schemas[body.__name__]["properties"] |= refused
    return schemas


class _Untitled(GenerateJsonSchema):
    """Titles would only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
