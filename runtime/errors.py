"""The one tree of errors that leave Jetway, and the one table that translates them at the edges.

    JetwayError
    ├── InvalidArgument        the request is wrong as it stands
    ├── ModelNotFound          the model is not served here
    ├── Overloaded             a queue or limit is full
    ├── Unavailable            starting, draining, or a part is lost
    ├── DeadlineExceeded       the deadline or queue timeout passed
    ├── EngineFailed           the engine failed on this request
    ├── Cancelled              the client cancelled
    ├── Internal               a fault of ours
    └── ConfigError            a wrong setting or engine directory: ends the process, never crosses an edge

Foreign exceptions are translated where they enter, never further in.
"""

from dataclasses import dataclass


class JetwayError(Exception):
    """Says in one sentence what is wrong, with limit and value; `param` is the request's field, if one is to blame."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidArgument(JetwayError):
    pass


class ModelNotFound(JetwayError):
    pass


class Overloaded(JetwayError):
    pass


class Unavailable(JetwayError):
    pass


class DeadlineExceeded(JetwayError):
    pass


class EngineFailed(JetwayError):
    pass


class Cancelled(JetwayError):
    pass


class Internal(JetwayError):
    pass


class ConfigError(JetwayError):
    pass


@dataclass(frozen=True, slots=True)
class Edge:
    """How one error class appears outside."""

    code: str  # jetway.v1.ErrorCode without its prefix, and the machine word of HTTP answers
    grpc: str  # name of the grpc.StatusCode
    http: int
    openai_type: str
    retryable: bool


EDGES: dict[type[JetwayError], Edge] = {
    InvalidArgument: Edge("INVALID_ARGUMENT", "INVALID_ARGUMENT", 400, "invalid_request_error", False),
    ModelNotFound: Edge("MODEL_NOT_FOUND", "NOT_FOUND", 404, "invalid_request_error", False),
    Overloaded: Edge("OVERLOADED", "RESOURCE_EXHAUSTED", 429, "rate_limit_error", True),
    Unavailable: Edge("UNAVAILABLE", "UNAVAILABLE", 503, "service_unavailable_error", True),
    DeadlineExceeded: Edge("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", 504, "timeout_error", False),
    EngineFailed: Edge("ENGINE_FAILED", "INTERNAL", 500, "server_error", False),
    Cancelled: Edge("CANCELLED", "CANCELLED", 499, "cancelled_error", False),
    Internal: Edge("INTERNAL", "INTERNAL", 500, "server_error", False),
}

BY_CODE: dict[str, type[JetwayError]] = {edge.code: cls for cls, edge in EDGES.items()}


def edge_of(error: JetwayError) -> Edge:
    return EDGES[type(error)]
