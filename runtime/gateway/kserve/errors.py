"""Errors in Triton's words, where it has its own: clients look for them."""

from jetway.runtime.errors import DeadlineExceeded, JetwayError, Overloaded
from jetway.runtime.gateway.words import cut

NO_LOADING = "explicit model load / unload is not allowed if polling is enabled"


def label(request_id: str) -> str:
    """What Triton's messages about a request begin with."""
    return f"[request id: {cut(request_id) or '<id_unknown>'}] "


def message_of(error: JetwayError, request_id: str) -> str:
    match error:
        case Overloaded():
            return f"{label(request_id)}Exceeds maximum queue size"
        case DeadlineExceeded():
            return "Request timeout expired"
    return error.message
