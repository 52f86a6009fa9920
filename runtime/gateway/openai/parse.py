"""Request bodies of the OpenAI API to `Call`. Every function raises InvalidArgument naming the field."""

from dataclasses import dataclass

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.access import Envelope
from jetway.runtime.gateway.call import Call, Chat, Message, Prompt, message, sampling_params
from jetway.scheduler.request import SamplingParams

from .read import BodyT, read, read_object
from .requests import CallBody, ChatBody, CompletionBody, MessageBody
from .unsupported import refuse_unsupported

_COMPLETION_MAX_TOKENS = 16  # what the OpenAI API takes for /v1/completions when the client says nothing
_SAMPLING = (
    "temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens",
    "ignore_eos",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HttpCall:
    call: Call
    stream: bool
    include_usage: bool  # a last chunk of the stream with the usage
    service_tier: str | None = None  # the one that is used; None: the client names none


def parse_chat(body: bytes, envelope: Envelope) -> HttpCall:
    chat = _read(ChatBody, body)
    if chat.top_logprobs is not None and not chat.logprobs:
        raise InvalidArgument("top_logprobs is allowed only with logprobs: true", param="top_logprobs")
    logprobs = (chat.top_logprobs or 0) if chat.logprobs else None
    prompt = Chat(tuple(_message(index, each) for index, each in enumerate(chat.messages)))
    return _http_call(chat, envelope, prompts=(prompt,), max_tokens=_max_tokens(chat), logprobs=logprobs)


def parse_completion(body: bytes, envelope: Envelope) -> HttpCall:
    completion = _read(CompletionBody, body)
    max_tokens = completion.max_tokens or _COMPLETION_MAX_TOKENS
    prompts = _prompts(completion)
    return _http_call(completion, envelope, prompts=prompts, max_tokens=max_tokens, logprobs=completion.logprobs)


def _read(model: type[BodyT], body: bytes) -> BodyT:
    values = read_object(body)
    refuse_unsupported(values)
    return read(model, values)


def _http_call(
    body: CallBody, envelope: Envelope, *, prompts: tuple[Prompt, ...], max_tokens: int | None, logprobs: int | None
) -> HttpCall:
    options = body.stream_options
    if options is not None and not body.stream:
        raise InvalidArgument("stream_options is allowed only with stream: true", param="stream_options")
    placement = envelope.place(body.priority, body.service_tier)
    call = Call(
        request_id=envelope.request_id,
        model=body.model,
        prompts=prompts,
        sampling=_sampling(body, logprobs),
        seed=body.seed,
        n=body.n or 1,
        max_tokens=max_tokens,
        stop=_stop(body),
        tenant=envelope.caller.tenant,
        placement=placement,
        deadline_s=envelope.deadline_s,
    )
    return HttpCall(
        call,
        stream=body.stream is True,
        include_usage=options is not None and options.include_usage is True,
        service_tier=None if body.service_tier is None else placement.service_tier,
    )


def _max_tokens(chat: ChatBody) -> int | None:
    """`max_completion_tokens`, or its older name `max_tokens`."""
    new, old = chat.max_completion_tokens, chat.max_tokens
    if new is not None and old is not None and new != old:
        raise InvalidArgument(
            f"max_completion_tokens is {new} and max_tokens, its older name, is {old}; send one of them",
            param="max_completion_tokens",
        )
    return new or old


def _message(index: int, body: MessageBody) -> Message:
    text = body.content if isinstance(body.content, str) else "\n".join(part.text for part in body.content)
    return message(body.role, text, f"messages[{index}]")


def _prompts(completion: CompletionBody) -> tuple[Prompt, ...]:
    prompt = completion.prompt
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt[0], int):
        return (tuple(prompt),)
    return tuple(each if isinstance(each, str) else tuple(each) for each in prompt)


def _sampling(body: CallBody, logprobs: int | None) -> SamplingParams:
    given = {name: value for name in _SAMPLING if (value := getattr(body, name)) is not None}
    bias = tuple((int(token), value) for token, value in (body.logit_bias or {}).items())
    stop_token_ids = tuple(body.stop_token_ids or ())
    top_k = max(0, body.top_k or 0)
    return sampling_params(
        given | {"logit_bias": bias, "stop_token_ids": stop_token_ids, "top_k": top_k, "logprobs": logprobs}
    )


def _stop(body: CallBody) -> tuple[str, ...]:
    if body.stop is None:
        return ()
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
