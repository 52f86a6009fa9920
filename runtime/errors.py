"""The one tree of errors that leave Jetway, and the one table that translates them at the edges.

    JetwayError
    ├── InvalidArgument        the request is wrong as it stands
    ├── Unauthenticated        there is no API key, or not one that is known
    ├── PermissionDenied       the API key does not allow it
    ├── ModelNotFound          the model is not served here
    ├── Overloaded             a queue or limit is full
    ├── Unavailable            starting, draining, or a part is lost
    ├── DeadlineExceeded       the deadline or queue timeout passed
    ├── EngineFailed           the engine failed on this request
    ├── Cancelled              the client cancelled
    ├── Unimplemented          a call that is not served here, or not in this way
    ├── Internal               a fault of ours
    ├── ConfigError            a wrong setting or engine directory: ends the process, never crosses an edge
    └── Fenced                 a newer scheduler has the executor: ends the process, never crosses an edge

Foreign exceptions are translated where they enter, never further in. docs/errors.md is made from this file.
"""

from dataclasses import dataclass


class JetwayError(Exception):
    """Says in one sentence what is wrong, with limit and value.

    `param` is the request's field, if one is to blame; `retry_after_s` says when a retry may succeed, where that is
    known.
    """

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class InvalidArgument(JetwayError):
    """The request is wrong as it stands; the message names limit and value."""


class Unauthenticated(JetwayError):
    """There is no API key, or not one that is known here."""


class PermissionDenied(JetwayError):
    """The API key does not allow this."""


class ModelNotFound(JetwayError):
    """The model is not served here."""


class Overloaded(JetwayError):
    """A queue or a limit is full."""


class Unavailable(JetwayError):
    """Starting, draining, or a part is lost."""


class DeadlineExceeded(JetwayError):
    """The deadline or the queue timeout passed."""


class EngineFailed(JetwayError):
    """The engine failed on this request."""


class Cancelled(JetwayError):
    """The client cancelled, went away, or stopped reading."""


class Unimplemented(JetwayError):
    """The call is not served here, or not in this way."""


class Internal(JetwayError):
    """A fault of Jetway itself."""


class ConfigError(JetwayError):
    """A wrong setting or engine directory."""


class Fenced(JetwayError):
    """A newer scheduler has taken the executor over: this one has to end."""


@dataclass(frozen=True, slots=True)
class Edge:
    """How one error class appears outside."""

    code: str  # jetway.v1.ErrorCode without its prefix, and the machine word of HTTP answers
    grpc: str  # name of the grpc.StatusCode
    http: int
    openai_type: str
    retryable: bool
    kserve_grpc: str  # as Triton answers: what does not fit a queue, or waits there too long, is UNAVAILABLE
    kserve_http: int


EDGES: dict[type[JetwayError], Edge] = {
    InvalidArgument: Edge(
        "INVALID_ARGUMENT", "INVALID_ARGUMENT", 400, "invalid_request_error", False, "INVALID_ARGUMENT", 400
    ),
    Unauthenticated: Edge(
        "UNAUTHENTICATED", "UNAUTHENTICATED", 401, "authentication_error", False, "UNAUTHENTICATED", 401
    ),
    PermissionDenied: Edge(
        "PERMISSION_DENIED", "PERMISSION_DENIED", 403, "permission_error", False, "PERMISSION_DENIED", 403
    ),
    ModelNotFound: Edge("MODEL_NOT_FOUND", "NOT_FOUND", 404, "invalid_request_error", False, "NOT_FOUND", 404),
    Overloaded: Edge("OVERLOADED", "RESOURCE_EXHAUSTED", 429, "rate_limit_error", True, "UNAVAILABLE", 503),
    Unavailable: Edge("UNAVAILABLE", "UNAVAILABLE", 503, "service_unavailable_error", True, "UNAVAILABLE", 503),
    DeadlineExceeded: Edge(
        "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", 504, "timeout_error", False, "UNAVAILABLE", 503
    ),
    EngineFailed: Edge("ENGINE_FAILED", "INTERNAL", 500, "server_error", False, "INTERNAL", 500),
    Cancelled: Edge("CANCELLED", "CANCELLED", 499, "cancelled_error", False, "CANCELLED", 400),
    Unimplemented: Edge("UNIMPLEMENTED", "UNIMPLEMENTED", 501, "invalid_request_error", False, "UNIMPLEMENTED", 501),
    Internal: Edge("INTERNAL", "INTERNAL", 500, "server_error", False, "INTERNAL", 500),
}  # fmt: skip

BY_CODE: dict[str, type[JetwayError]] = {edge.code: cls for cls, edge in EDGES.items()}


def edge_of(error: JetwayError) -> Edge:
    return EDGES[type(error)]
