"""Requests and answers as Triton's own messages: needs grpcio, and tritonclient's protobuf types."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult

import grpc
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from .exchange import CODES, CONNECT_TIMEOUT_S, SILENCE_LIMIT_S, Array, Asked, Failed, Said, lost

Message = Any  # tritonclient's types are not known to type checkers

ERROR_KEY = "jetway-error-bin"  # stands in the trailing metadata of every error that is Jetway's own
FINAL = "triton_final_response"
_METADATA = [("triton_grpc_error", "true")]  # an error is the stream's status: an error's message alone has no code
_PING_INTERVAL_MS = 10_000
_PING_TIMEOUT_MS = int(1000 * SILENCE_LIMIT_S) - _PING_INTERVAL_MS
OPTIONS = [
    ("grpc.min_reconnect_backoff_ms", int(1000 * CONNECT_TIMEOUT_S)),  # how long connecting may take, too
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own, which no failure before it holds back
    ("grpc.enable_http_proxy", 0),
    # A gateway that is stopped, or whose host is lost, answers no ping. gRPC 1.85 goes by its ping timeout (60 s unless it is
    # set), older ones by the other.
    ("grpc.keepalive_time_ms", _PING_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),  # no limit: a request may wait long
    ("grpc.max_receive_message_length", -1),
]
_PARAMETER_FIELDS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


class GrpcTransport:
    """To the gateway at a grpc or grpcs URL."""

    def __init__(self, url: SplitResult, authorization: Mapping[str, str]) -> None:
        self._url = url
        self._metadata = [*_METADATA, *authorization.items()]

    def connection(self, asked: Asked) -> "GrpcConnection":
        address = self._url.netloc
        if self._url.scheme == "grpcs":
            channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(), OPTIONS)
        else:
            channel = grpc.insecure_channel(address, OPTIONS)
        return GrpcConnection(channel, address, _message(asked), self._metadata)


class GrpcConnection:
    def __init__(
        self, channel: grpc.Channel, address: str, message: Message, metadata: Sequence[tuple[str, str]]
    ) -> None:
        self._channel = channel
        self._address = address
        self._message = message
        self._metadata = metadata
        self._call: Any = None

    def open(self) -> None:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._call = stub.ModelStreamInfer(iter([self._message]), metadata=self._metadata)

    def cut(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def close(self) -> None:
        self._channel.close()

    def responses(self) -> Iterator[Said]:
        try:
            for message in self._call:
                yield _said(message.infer_response)
        except grpc.RpcError as error:
            raise self._failed(error) from error

    def _failed(self, error: Any) -> Failed:
        code = CODES.get(error.code().name, "INTERNAL")
        if ERROR_KEY in dict(error.trailing_metadata() or ()):
            return Failed(error.details(), code)
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            return lost(self._address, error.details())
        return Failed(f"Jetway at {self._address} says {error.code().name}: {error.details()}", code)


def _message(asked: Asked) -> Message:
    message = service_pb2.ModelInferRequest(model_name=asked.model, id=asked.request_id)
    for name, array in asked.inputs.items():
        datatype = np_to_triton_dtype(array.dtype)
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_input_contents.append(_content(array) if datatype == "BYTES" else array.tobytes())
    for name, value in asked.parameters.items():
        setattr(message.parameters[name], _PARAMETER_FIELDS[type(value)], value)
    return message


def _content(array: Array) -> bytes:
    return b"".join(serialize_byte_tensor(array).flat)


def _said(message: Message) -> Said:
    result = InferResult(message)
    outputs = {output.name: result.as_numpy(output.name) for output in message.outputs}
    return Said(outputs, final=message.parameters[FINAL].bool_param)
