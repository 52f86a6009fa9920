"""Service classes: who may queue how much."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClass:
    """A named class with its queue bounds. Sequences that were preempted are exempt from them."""

    name: str = "standard"
    max_queued_requests: int = 1024
    max_queued_tokens: int = 1 << 20  # prompt tokens that wait for their first start
