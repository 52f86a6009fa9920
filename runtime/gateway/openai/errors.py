"""Errors in the form that OpenAI's clients read."""

import json

from jetway.runtime.errors import JetwayError, Unauthenticated, edge_of

_encode = json.JSONEncoder().encode


def error_body(error: JetwayError) -> str:
    edge = edge_of(error)
    return error_object(error.message, edge.openai_type, edge.code.lower(), error.param)


def error_object(message: str, kind: str, code: str, param: str | None = None) -> str:
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event(error: JetwayError) -> str:
    """The last but one event of a stream. Plain data: the official client raises nothing for an `event: error`."""
    return f"data: {error_body(error)}\n\n"


def error_headers(error: JetwayError) -> dict[str, str]:
    """What an answer's header says of its error: whether to try again, and with 401 how to say who calls (RFC 9110)."""
    challenge = {"www-authenticate": "Bearer"} if isinstance(error, Unauthenticated) else {}
    return challenge | retry_headers(error)


def retry_headers(error: JetwayError) -> dict[str, str]:
    """Whether, and when, it makes sense to try again. Without them clients retry every status of 429 and 500 up."""
    if not edge_of(error).retryable:
        return {"x-should-retry": "false"}
    return {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
