"""What a call of the client can fail with, and its translation from gRPC; `jetway.client` is the public face."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import grpc
import grpc.aio

from jetway.v1 import common_pb2


class JetwayError(Exception):
    """`retryable`: the same request can succeed later; `retry_after_s`: how much later, if the server knows.

    `param`: the request's field, if one is to blame.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class InvalidArgument(JetwayError):
    pass


class Unauthenticated(JetwayError):
    pass


class PermissionDenied(JetwayError):
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
    common_pb2.ERROR_CODE_UNAUTHENTICATED: Unauthenticated,
    common_pb2.ERROR_CODE_PERMISSION_DENIED: PermissionDenied,
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


def error_from_proto(error: common_pb2.Error) -> JetwayError:
    return _BY_CODE.get(error.code, Internal)(
        error.message,
        error.param if error.HasField("param") else None,
        error.retry_after_s if error.HasField("retry_after_s") else None,
    )


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises a failed call of gRPC as what it means here."""
    try:
        yield
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)  # it is a call too: it has a status and metadata
        metadata: dict[str, Any] = dict(error.trailing_metadata() or ())
        if _ERROR_KEY in metadata:
            raise error_from_proto(common_pb2.Error.FromString(metadata[_ERROR_KEY])) from error
        cls = _BY_STATUS.get(error.code(), Internal)
        raise cls(error.details() or error.code().name) from error
