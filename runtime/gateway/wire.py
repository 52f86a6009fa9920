"""Errors that come as `jetway.v1.Error`. Translation only."""

from jetway.runtime.errors import BY_CODE, Internal, JetwayError
from jetway.v1 import common_pb2

_CLASSES = {common_pb2.ErrorCode.Value(f"ERROR_CODE_{code}"): cls for code, cls in BY_CODE.items()}


def error_from_proto(error: common_pb2.Error) -> JetwayError:
    """A code that this version does not know is a fault of ours."""
    cls = _CLASSES.get(error.code, Internal)
    return cls(
        error.message,
        param=error.param if error.HasField("param") else None,
        retry_after_s=error.retry_after_s if error.HasField("retry_after_s") else None,
    )
