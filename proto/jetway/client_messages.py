"""What a client says and hears, and its translation to and from `jetway.v1`; `jetway.client` is the public face."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

import grpc
import grpc.aio

from jetway.v1 import common_pb2, inference_pb2


class JetwayError(Exception):
    """`retryable`: the same request can succeed later. `param`: the request's field, if one is to blame."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidArgument(JetwayError):
    pass


class ModelNotFound(JetwayError):
    pass


class Overloaded(JetwayError):
    retryable = True


class Unavailable(JetwayError):
    retryable = True


class DeadlineExceeded(JetwayError):
    pass


class Cancelled(JetwayError):
    pass


class EngineFailed(JetwayError):
    pass


class Internal(JetwayError):
    pass


_ERROR_KEY = "jetway-error-bin"  # trailing metadata: the server's own jetway.v1.Error
_BY_CODE: dict[common_pb2.ErrorCode.ValueType, type[JetwayError]] = {
    common_pb2.ERROR_CODE_INVALID_ARGUMENT: InvalidArgument,
    common_pb2.ERROR_CODE_MODEL_NOT_FOUND: ModelNotFound,
    common_pb2.ERROR_CODE_OVERLOADED: Overloaded,
    common_pb2.ERROR_CODE_UNAVAILABLE: Unavailable,
    common_pb2.ERROR_CODE_DEADLINE_EXCEEDED: DeadlineExceeded,
    common_pb2.ERROR_CODE_ENGINE_FAILED: EngineFailed,
    common_pb2.ERROR_CODE_CANCELLED: Cancelled,
}
# For what gRPC itself says; a server of Jetway sends its own error along.
_BY_STATUS: dict[grpc.StatusCode, type[JetwayError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.RESOURCE_EXHAUSTED: InvalidArgument,  # a message larger than the server takes
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
}


def _error_from_proto(error: common_pb2.Error) -> JetwayError:
    return _BY_CODE.get(error.code, Internal)(error.message, error.param if error.HasField("param") else None)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises a failed call of gRPC as what it means here."""
    try:
        yield
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)  # it is a call too: it has a status and metadata
        metadata: dict[str, Any] = dict(error.trailing_metadata() or ())
        if _ERROR_KEY in metadata:
            raise _error_from_proto(common_pb2.Error.FromString(metadata[_ERROR_KEY])) from error
        cls = _BY_STATUS.get(error.code(), Internal)
        raise cls(error.details() or error.code().name) from error


class Params(TypedDict, total=False):
    """What a call may say. One of prompt, token_ids and messages; the rest as in jetway/v1/{inference,common}.proto."""

    token_ids: Sequence[int]
    messages: Sequence[Mapping[str, str]]  # {"role": "system" | "user" | "assistant", "content": ...}
    model: str
    max_tokens: int
    stop: Sequence[str]
    request_id: str
    timeout_s: float  # of the whole call; DeadlineExceeded after it
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    stop_token_ids: Sequence[int]
    min_tokens: int
    ignore_eos: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Completion:
    request_id: str
    model: str
    text: str
    token_ids: list[int]
    finish_reason: str  # "stop" or "length"
    usage: Usage


@dataclass(frozen=True, slots=True)
class Delta:
    """What an answer gained. The text may be empty; the last delta, and only that, has finish_reason and usage."""

    request_id: str
    text: str
    token_ids: list[int]
    finish_reason: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    engine: common_pb2.EngineDescription


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
            **{name: given.pop(name, None) for name in ("model", "max_tokens", "request_id")},
        )
        sampling = common_pb2.SamplingParams(logit_bias_tokens=bias.keys(), logit_bias_values=bias.values(), **given)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if prompt is not None:
        request.text = prompt
    request.sampling.CopyFrom(sampling)
    return request


def _chat(messages: Sequence[Mapping[str, str]]) -> inference_pb2.ChatMessages:
    return inference_pb2.ChatMessages(messages=[inference_pb2.ChatMessage(**message) for message in messages])


def parse_completion(response: inference_pb2.GenerateResponse) -> Completion:
    return Completion(
        request_id=response.request_id,
        model=response.model,
        text=response.text,
        token_ids=list(response.token_ids),
        finish_reason=_finish_reason(response.finish_reason),
        usage=Usage(response.usage.prompt_tokens, response.usage.completion_tokens),
    )


def parse_delta(message: inference_pb2.GenerateDelta) -> Delta:
    """Raises the error that the answer ended with."""
    if message.HasField("error"):
        raise _error_from_proto(message.error)
    usage = Usage(message.usage.prompt_tokens, message.usage.completion_tokens)
    ended = message.finish_reason != common_pb2.FINISH_REASON_UNSPECIFIED
    return Delta(
        request_id=message.request_id,
        text=message.text,
        token_ids=list(message.token_ids),
        finish_reason=_finish_reason(message.finish_reason) if ended else None,
        usage=usage if ended else None,
    )


def _finish_reason(reason: common_pb2.FinishReason.ValueType) -> str:
    return common_pb2.FinishReason.Name(reason).removeprefix("FINISH_REASON_").lower()


def parse_models(response: inference_pb2.ListModelsResponse) -> list[Model]:
    return [Model(model.id, model.engine) for model in response.models]
