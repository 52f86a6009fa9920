"""What the scheduler says: its only outlet. Events of one sequence come in order."""

from enum import StrEnum
from typing import NamedTuple

from .plan import TokenLogprobs
from .request import SequenceId


class FinishReason(StrEnum):
    STOP = "stop"  # an end token, a stop token or a stop string
    LENGTH = "length"  # the output limit
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"  # the engine could not compute it


class TokenSampled(NamedTuple):
    sequence_id: SequenceId
    token: int
    logprobs: TokenLogprobs | None


class SequenceFinished(NamedTuple):
    """Exactly once for every sequence of an accepted request."""

    sequence_id: SequenceId
    reason: FinishReason
    num_tokens: int  # output tokens that count
    num_cached_tokens: int  # prompt tokens that its first start found in the prefix cache
    message: str  # why, for FAILED and EXPIRED; else empty
    queued_s: float | None  # from arrival to the first start; None: it never started


class RequestFinished(NamedTuple):
    """Exactly once for every accepted request, after the last of its sequences."""

    request_id: str


Event = TokenSampled | SequenceFinished | RequestFinished
