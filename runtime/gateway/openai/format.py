"""Answers as the OpenAI API writes them, put together as text: only what changes is encoded.

All of it is ASCII: some clients split a stream's lines at any Unicode line end.
"""

import json
import time
from dataclasses import dataclass

from jetway.runtime.gateway.answer import Choice, Completion, Delta, Usage
from jetway.v1 import common_pb2

from .errors import error_event
from .logprobs import LogprobsWriter

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
    opening: str | None  # of a choice's first chunk, before any text
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the whole and every chunk begin with; `service_tier` where the client named one."""

    call_id: str
    model: str
    service_tier: str | None = None

    def text(self) -> str:
        tier = "" if self.service_tier is None else f',"service_tier":{_encode(self.service_tier)}'
        return f'"id":{_encode(self.call_id)},"created":{int(time.time())},"model":{_encode(self.model)}{tier}'


class Format:
    """One call's answer, whole or as events of a stream.

    `logprobs` writes those of a choice; None: the call asks for none. With `include_usage` a stream ends with the usage.
    """

    def __init__(self, shape: Shape, head: Head, logprobs: LogprobsWriter | None, *, include_usage: bool) -> None:
        self._shape = shape
        start = head.text()
        self._whole_head = f'{start},"object":"{shape.whole_object}"'
        self._chunk_head = f'data: {{{start},"object":"{shape.chunk_object}","choices":'
        self._chunk_tail = ',"usage":null}\n\n' if include_usage else "}\n\n"
        self._logprobs = logprobs
        self._include_usage = include_usage

    def whole(self, completion: Completion) -> str:
        choices = ",".join(self._whole_choice(index, choice) for index, choice in enumerate(completion.choices))
        return f'{{{self._whole_head},"choices":[{choices}],"usage":{_usage(completion.usage)}}}'

    def opening(self, num_choices: int) -> str:
        """What a stream says once the call is accepted; may be empty."""
        opening = self._shape.opening
        return "" if opening is None else "".join(self._chunk(index, opening) for index in range(num_choices))

    def delta(self, delta: Delta) -> str:
        """The events that tell a delta; may be empty. After an error, as after the usage, the stream is at its end."""
        events = ""
        piece = delta.piece
        if self._logprobs is not None and piece.scored:
            events = self._chunk(delta.choice, self._shape.chunk % _encode(piece.text), self._logprobs(piece.scored))
        elif piece.text:
            events = self._chunk(delta.choice, self._shape.chunk % _encode(piece.text))
        ending = delta.ending
        if ending is None:
            return events
        if ending.error is not None:
            return events + error_event(ending.error) + DONE
        events += self._chunk(delta.choice, self._shape.closing, finish_reason=_REASONS[ending.finish_reason])
        return events if delta.usage is None else events + self._last_usage(delta.usage) + DONE

    def _whole_choice(self, index: int, choice: Choice) -> str:
        content = self._shape.whole % _encode(choice.text)
        logprobs = "null" if self._logprobs is None else self._logprobs(choice.scored)
        return _choice(index, content, logprobs, _REASONS[choice.finish_reason])

    def _chunk(self, index: int, content: str, logprobs: str = "null", finish_reason: str = "null") -> str:
        return f"{self._chunk_head}[{_choice(index, content, logprobs, finish_reason)}]{self._chunk_tail}"

    def _last_usage(self, usage: Usage) -> str:
        return f'{self._chunk_head}[],"usage":{_usage(usage)}}}\n\n' if self._include_usage else ""


def _choice(index: int, content: str, logprobs: str, finish_reason: str) -> str:
    return f'{{"index":{index},{content},"logprobs":{logprobs},"finish_reason":{finish_reason}}}'


def _usage(usage: Usage) -> str:
    total = usage.prompt_tokens + usage.completion_tokens
    return (
        f'{{"prompt_tokens":{usage.prompt_tokens},"completion_tokens":{usage.completion_tokens},'
        f'"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{usage.cached_tokens}}}}}'
    )
