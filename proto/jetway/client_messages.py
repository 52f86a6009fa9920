"""What a client says and hears, and its translation to and from `jetway.v1`; `jetway.client` is the public face."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from jetway.v1 import common_pb2, inference_pb2

from .client_errors import InvalidArgument, error_from_proto


class Params(TypedDict, total=False):
    """What a call may say. One of prompt, token_ids and messages; the rest as in jetway/v1/{inference,common}.proto."""

    token_ids: Sequence[int]
    messages: Sequence[Mapping[str, str]]  # {"role": "system" | "user" | "assistant", "content": ...}
    model: str
    n: int
    max_tokens: int
    stop: Sequence[str]
    request_id: str
    service_class: str
    priority: float
    deadline_ms: int  # from acceptance to the end; the server ends what takes longer
    timeout_s: float  # of the whole call; DeadlineExceeded after it
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    logprobs: int  # of each token and of so many best alternatives
    stop_token_ids: Sequence[int]
    min_tokens: int
    ignore_eos: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The prompt counts once, the tokens of all choices count; `cached_tokens` of the prompt were found in the cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms; `top` maps the best alternatives, best first, to theirs."""

    logprob: float
    top: dict[int, float]


@dataclass(frozen=True, slots=True)
class Choice:
    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs]  # parallel to `token_ids`; empty unless the call asked
    finish_reason: str  # "stop" or "length"


@dataclass(frozen=True, slots=True)
class Completion:
    request_id: str
    model: str
    choices: list[Choice]
    usage: Usage

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.choices[0].text


@dataclass(frozen=True, slots=True)
class Delta:
    """What a choice gained. The text may be empty; its last delta has the finish_reason, the call's last one usage."""

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    finish_reason: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    engine: common_pb2.EngineDescription


_FIELDS = ("model", "max_tokens", "request_id", "n", "service_class", "priority", "deadline_ms")  # not of sampling


def build_request(prompt: str | None, params: Params) -> inference_pb2.GenerateRequest:
    """Raises InvalidArgument for what the message cannot hold, such as a negative count or an unknown name."""
    given: dict[str, Any] = {name: value for name, value in params.items() if name != "timeout_s"}
    bias = given.pop("logit_bias", None) or {}
    stop = given.pop("stop", None) or ()
    token_ids, messages = given.pop("token_ids", None), given.pop("messages", None)
    if [prompt, token_ids, messages].count(None) != 2:
        raise InvalidArgument("a call needs exactly one of prompt, token_ids and messages", "prompt")
    try:
        request = inference_pb2.GenerateRequest(
            token_ids=None if token_ids is None else inference_pb2.TokenIds(ids=token_ids),
            chat=None if messages is None else _chat(messages),
            stop=[stop] if isinstance(stop, str) else stop,
            **{name: given.pop(name, None) for name in _FIELDS},
        )
        sampling = common_pb2.SamplingParams(logit_bias_tokens=bias.keys(), logit_bias_values=bias.values(), **given)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if prompt is not None:
        request.text = prompt
    request.sampling.CopyFrom(sampling)
    return request


def call_metadata(api_key: str | None, tenant: str | None) -> tuple[tuple[str, str], ...]:
    given = {"authorization": None if api_key is None else f"Bearer {api_key}", "x-jetway-tenant": tenant}
    return tuple((key, value) for key, value in given.items() if value is not None)


def _chat(messages: Sequence[Mapping[str, str]]) -> inference_pb2.ChatMessages:
    return inference_pb2.ChatMessages(messages=[inference_pb2.ChatMessage(**message) for message in messages])


def parse_completion(response: inference_pb2.GenerateResponse) -> Completion:
    return Completion(
        request_id=response.request_id,
        model=response.model,
        choices=[_parse_choice(choice) for choice in response.choices],
        usage=_parse_usage(response.usage),
    )


def parse_delta(message: inference_pb2.GenerateDelta) -> Delta:
    """Raises the error that the choice ended with."""
    if message.HasField("error"):
        raise error_from_proto(message.error)
    ended = message.finish_reason != common_pb2.FINISH_REASON_UNSPECIFIED
    return Delta(
        request_id=message.request_id,
        index=message.index,
        text=message.text,
        token_ids=list(message.token_ids),
        logprobs=_parse_logprobs(message.logprobs),
        finish_reason=_finish_reason(message.finish_reason) if ended else None,
        usage=_parse_usage(message.usage) if message.HasField("usage") else None,
    )


def _parse_choice(choice: inference_pb2.Choice) -> Choice:
    return Choice(
        index=choice.index,
        text=choice.text,
        token_ids=list(choice.token_ids),
        logprobs=_parse_logprobs(choice.logprobs),
        finish_reason=_finish_reason(choice.finish_reason),
    )


def _parse_logprobs(messages: Iterable[common_pb2.TokenLogprobs]) -> list[TokenLogprobs]:
    return [TokenLogprobs(each.logprob, dict(zip(each.top_tokens, each.top_logprobs))) for each in messages]


def _parse_usage(usage: inference_pb2.Usage) -> Usage:
    return Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def _finish_reason(reason: common_pb2.FinishReason.ValueType) -> str:
    return common_pb2.FinishReason.Name(reason).removeprefix("FINISH_REASON_").lower()


def parse_models(response: inference_pb2.ListModelsResponse) -> list[Model]:
    return [Model(model.id, model.engine) for model in response.models]
