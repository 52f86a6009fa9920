"""Request bodies of the OpenAI API to `Call`. Every function raises InvalidArgument naming the field."""

import re
from dataclasses import dataclass
from typing import Any

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.call import Call, Chat, Message, Prompt, message, sampling_params
from jetway.scheduler.request import SamplingParams

from .fields import Fields, shown
from .unsupported import refuse_unsupported

_COMPLETION_MAX_TOKENS = 16  # what the OpenAI API takes for /v1/completions when the client says nothing
_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_INTEGERS = ("top_k", "min_tokens", "seed")


@dataclass(frozen=True, slots=True)
class HttpCall:
    call: Call
    stream: bool
    include_usage: bool  # a last chunk of the stream with the usage


def parse_chat(body: Fields, request_id: str) -> HttpCall:
    return _parse(body, request_id, prompt=_chat(body), max_tokens=_max_tokens(body))


def parse_completion(body: Fields, request_id: str) -> HttpCall:
    max_tokens = body.count("max_tokens") or _COMPLETION_MAX_TOKENS
    return _parse(body, request_id, prompt=_prompt(body), max_tokens=max_tokens)


def _parse(body: Fields, request_id: str, *, prompt: Prompt, max_tokens: int | None) -> HttpCall:
    refuse_unsupported(body)
    call = Call(
        request_id=request_id,
        model=body.string("model"),
        prompt=prompt,
        sampling=_sampling(body),
        max_tokens=max_tokens,
        stop=_stop(body),
    )
    stream = body.boolean("stream") or False
    options = body.object("stream_options")
    if options is not None and not stream:
        raise InvalidArgument("stream_options is allowed only with stream: true", param="stream_options")
    return HttpCall(call, stream, options is not None and options.boolean("include_usage") is True)


def _max_tokens(body: Fields) -> int | None:
    """`max_completion_tokens`, or its older name `max_tokens`."""
    new, old = body.count("max_completion_tokens"), body.count("max_tokens")
    if new is not None and old is not None and new != old:
        raise InvalidArgument(
            f"max_completion_tokens is {new} and max_tokens, its older name, is {old}; send one of them",
            param="max_completion_tokens",
        )
    return new or old


def _chat(body: Fields) -> Chat:
    messages = body.items("messages")
    if messages is None:
        raise InvalidArgument("messages is missing; at least 1 message is needed", param="messages")
    return Chat(tuple(_message(index, value) for index, value in enumerate(messages)))


def _message(index: int, value: Any) -> Message:
    path = f"messages[{index}]"
    if not isinstance(value, dict):
        raise InvalidArgument(f"{path} must be an object, not {shown(value)}", param=path)
    fields = Fields(value, path)
    role = fields.required_string("role")
    for name in ("tool_calls", "function_call"):
        if fields.raw(name):
            raise InvalidArgument(f"{path}.{name} is not supported here; leave it out", param=f"{path}.{name}")
    return message(role, _content(fields), path)


def _content(fields: Fields) -> str:
    """Text, or text parts, which become lines."""
    parts = fields.raw("content")
    if not isinstance(parts, list):
        return fields.required_string("content")
    texts = []
    for index, part in enumerate(parts):
        path = f"{fields.param('content')}[{index}]"
        if not isinstance(part, dict) or part.get("type") != "text":
            raise InvalidArgument(f'{path} must be a part of type "text", not {shown(part)}', param=path)
        texts.append(Fields(part, path).required_string("text"))
    return "\n".join(texts)


def _prompt(body: Fields) -> Prompt:
    """A text, a list of token ids, or a list of one of either."""
    prompt = body.raw("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        [prompt] = prompt
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        raise InvalidArgument(f"prompt may hold 1 prompt, not {len(prompt)}; send one request each", param="prompt")
    if isinstance(prompt, list):
        return body.check_token_ids("prompt", prompt)
    raise body.error("prompt", "a string or a list of token ids")


def _sampling(body: Fields) -> SamplingParams:
    given: dict[str, Any] = {name: body.number(name) for name in _NUMBERS}
    given |= {name: body.integer(name) for name in _INTEGERS}
    given["ignore_eos"] = body.boolean("ignore_eos")
    given["stop_token_ids"] = body.token_ids("stop_token_ids")
    given["logit_bias"] = _logit_bias(body)
    return sampling_params({name: value for name, value in given.items() if value is not None})


def _logit_bias(body: Fields) -> tuple[tuple[int, float], ...] | None:
    """An object from token ids, as decimal strings, to biases."""
    biases = body.object("logit_bias")
    if biases is None:
        return None
    for name in biases.names():
        if not re.fullmatch("[0-9]{1,9}", name):
            raise InvalidArgument(f"logit_bias must map token ids, not {shown(name)}", param="logit_bias")
    return tuple((int(name), biases.number(name) or 0.0) for name in biases.names())


def _stop(body: Fields) -> tuple[str, ...]:
    stop = body.raw("stop")
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise body.error("stop", "a string or a list of strings")
    return tuple(stops)
