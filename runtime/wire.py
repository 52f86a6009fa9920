"""What every service says: descriptions, sampling, logprobs and errors, to messages and back.

Translation only.
"""

from jetway.scheduler.plan import EngineDescription, TokenLogprobs
from jetway.scheduler.request import InvalidRequest, SamplingParams
from jetway.v1 import common_pb2

from .errors import BY_CODE, Internal, JetwayError, edge_of

MAX_MESSAGE_BYTES = 64 << 20
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A peer that is stopped, or a network that is cut, ends the stream.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # newer gRPC goes by this one
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    # A role that was replaced is found soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]

_REPEATED = {"logit_bias_tokens", "logit_bias_values", "stop_token_ids"}
_CLASSES = {common_pb2.ErrorCode.Value(f"ERROR_CODE_{code}"): cls for code, cls in BY_CODE.items()}


def description_to_proto(description: EngineDescription) -> common_pb2.EngineDescription:
    fields = {name: getattr(description, name) for name in EngineDescription.__slots__}
    return common_pb2.EngineDescription(**fields)


def description_from_proto(message: common_pb2.EngineDescription) -> EngineDescription:
    fields = {name: getattr(message, name) for name in EngineDescription.__slots__}
    return EngineDescription(**fields | {"capabilities": tuple(message.capabilities)})


def sampling_to_proto(params: SamplingParams) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias_tokens=[token for token, _ in params.logit_bias],
        logit_bias_values=[bias for _, bias in params.logit_bias],
        logprobs=params.logprobs,
        stop_token_ids=params.stop_token_ids,
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        seed=params.seed,
    )


def sampling_from_proto(message: common_pb2.SamplingParams) -> SamplingParams:
    """The parameters with defaults for what is absent. Raises InvalidRequest for a value out of range or without its pair."""
    if len(message.logit_bias_tokens) != len(message.logit_bias_values):
        raise InvalidRequest("logit_bias", "logit_bias must have as many values as tokens")
    present = {field.name: value for field, value in message.ListFields() if field.name not in _REPEATED}
    return SamplingParams(
        logit_bias=tuple(zip(message.logit_bias_tokens, message.logit_bias_values, strict=True)),
        stop_token_ids=tuple(message.stop_token_ids),
        **present,
    )


def logprobs_to_proto(logprobs: TokenLogprobs) -> common_pb2.TokenLogprobs:
    return common_pb2.TokenLogprobs(
        logprob=logprobs.logprob, top_tokens=logprobs.top_tokens, top_logprobs=logprobs.top_logprobs
    )


def logprobs_from_proto(message: common_pb2.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(message.logprob, tuple(message.top_tokens), tuple(message.top_logprobs))


def error_to_proto(error: JetwayError) -> common_pb2.Error:
    code = common_pb2.ErrorCode.Value(f"ERROR_CODE_{edge_of(error).code}")
    return common_pb2.Error(code=code, message=error.message, param=error.param, retry_after_s=error.retry_after_s)


def error_from_proto(error: common_pb2.Error) -> JetwayError:
    """A code that this version does not know is a fault of ours."""
    cls = _CLASSES.get(error.code, Internal)
    return cls(
        error.message,
        param=error.param if error.HasField("param") else None,
        retry_after_s=error.retry_after_s if error.HasField("retry_after_s") else None,
    )
