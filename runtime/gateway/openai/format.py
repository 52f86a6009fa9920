"""Answers as the OpenAI API writes them, put together as text: only what changes is encoded.

All of it is ASCII: some clients split a stream's lines at any Unicode line end.
"""

import json
import time
from dataclasses import dataclass

from jetway.runtime.errors import JetwayError, edge_of
from jetway.runtime.gateway.answer import Completion, Delta, Usage
from jetway.v1 import common_pb2

DONE = "data: [DONE]\n\n"
_REASONS = {common_pb2.FINISH_REASON_STOP: '"stop"', common_pb2.FINISH_REASON_LENGTH: '"length"'}
_encode = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Where the two kinds of completion differ: names, and how a choice holds its text (as %s)."""

    id_prefix: str
    whole_object: str
    chunk_object: str
    whole: str
    chunk: str
    opening: str | None  # of the first chunk, before any text
    closing: str  # of the chunk with the finish reason


CHAT = Shape(
    id_prefix="chatcmpl-",
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    whole='"message":{"role":"assistant","content":%s,"refusal":null}',
    chunk='"delta":{"content":%s}',
    opening='"delta":{"role":"assistant","content":""}',
    closing='"delta":{}',
)
COMPLETION = Shape(
    id_prefix="cmpl-",
    whole_object="text_completion",
    chunk_object="text_completion",
    whole='"text":%s',
    chunk='"text":%s',
    opening=None,
    closing='"text":""',
)


class Format:
    """One call's answer, whole or as events of a stream; with `include_usage` the stream ends with the usage."""

    def __init__(self, shape: Shape, call_id: str, model: str, *, include_usage: bool) -> None:
        self._shape = shape
        self._head = f'"id":{_encode(call_id)},"created":{int(time.time())},"model":{_encode(model)}'
        self._chunk_usage = ',"usage":null' if include_usage else ""
        self._include_usage = include_usage

    def whole(self, completion: Completion) -> str:
        outcome = completion.outcome
        choice = _choice(self._shape.whole % _encode(completion.text), _REASONS[outcome.finish_reason])
        usage = _usage(outcome.usage)
        return f'{{{self._head},"object":"{self._shape.whole_object}","choices":[{choice}],"usage":{usage}}}'

    def opening(self) -> str:
        """What a stream says once the call is accepted; may be empty."""
        return "" if self._shape.opening is None else self._chunk(_choice(self._shape.opening, "null"))

    def delta(self, delta: Delta) -> str:
        """The events that tell a delta, up to the end of the stream after the last one; may be empty."""
        text = self._chunk(_choice(self._shape.chunk % _encode(delta.text), "null")) if delta.text else ""
        outcome = delta.outcome
        if outcome is None:
            return text
        if outcome.error is not None:
            return text + error_event(outcome.error) + DONE
        closing = self._chunk(_choice(self._shape.closing, _REASONS[outcome.finish_reason]))
        return text + closing + self._last_usage(outcome.usage) + DONE

    def _last_usage(self, usage: Usage) -> str:
        if not self._include_usage:
            return ""
        return f'data: {{{self._chunk_head()},"choices":[],"usage":{_usage(usage)}}}\n\n'

    def _chunk(self, choice: str) -> str:
        return f'data: {{{self._chunk_head()},"choices":[{choice}]{self._chunk_usage}}}\n\n'

    def _chunk_head(self) -> str:
        return f'{self._head},"object":"{self._shape.chunk_object}"'


def error_event(error: JetwayError) -> str:
    return f"data: {error_body(error)}\n\n"


def error_body(error: JetwayError) -> str:
    edge = edge_of(error)
    return error_object(error.message, edge.openai_type, edge.code.lower(), error.param)


def error_object(message: str, kind: str, code: str, param: str | None = None) -> str:
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _choice(content: str, finish_reason: str) -> str:
    return f'{{"index":0,{content},"logprobs":null,"finish_reason":{finish_reason}}}'


def _usage(usage: Usage) -> str:
    total = usage.prompt_tokens + usage.completion_tokens
    return f'{{"prompt_tokens":{usage.prompt_tokens},"completion_tokens":{usage.completion_tokens},"total_tokens":{total}}}'
