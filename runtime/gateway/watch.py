"""One call from its arrival to its end, for the metrics and the log."""

import logging
import time
from types import TracebackType
from typing import Self

from jetway.runtime.errors import Cancelled, Internal, JetwayError, edge_of
from jetway.v1 import common_pb2

from .metrics.instruments import Metrics

log = logging.getLogger(__name__)


class Watch:
    """Entered when a call arrives; leaving it says the outcome, once: stop, length, or the code of an error."""

    def __init__(self, metrics: Metrics, request_id: str) -> None:
        self._metrics = metrics
        self._request_id = request_id
        self._arrival = time.perf_counter()
        self._last_gain: dict[int, float] = {}  # by choice
        self._num_open = 0
        self._num_prompt_tokens = 0
        self._num_tokens = 0
        self._error: JetwayError | None = None
        self._outcome = "stop"

    def accepted(self, num_choices: int, num_prompt_tokens: int) -> None:
        self._num_open = num_choices
        self._num_prompt_tokens = num_prompt_tokens
        self._metrics.prompt_tokens.inc(num_prompt_tokens)

    def gained(self, choice: int, num_tokens: int) -> None:
        """At most one observation a delta: this is called for each."""
        now = time.perf_counter()
        last = self._last_gain.get(choice)
        if last is not None:
            self._metrics.inter_token_latency.observe((now - last) / num_tokens)
        elif not self._last_gain:
            self._metrics.time_to_first_token.observe(now - self._arrival)
        self._last_gain[choice] = now
        self._num_tokens += num_tokens
        self._metrics.generation_tokens.inc(num_tokens)

    def choice_ended(self, reason: common_pb2.FinishReason.ValueType, error: JetwayError | None) -> None:
        self._num_open -= 1
        self._error = self._error or error
        if reason == common_pb2.FINISH_REASON_LENGTH:
            self._outcome = "length"

    def failed(self, error: JetwayError) -> None:
        """The call fails for a reason that is raised to nobody."""
        self._error = error

    def __enter__(self) -> Self:
        self._metrics.live_requests.inc()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if (failure := self._failure(error)) is not None:
            self._outcome = edge_of(failure).code.lower()
        elapsed_s = time.perf_counter() - self._arrival
        self._metrics.live_requests.dec()
        self._metrics.requests.labels(self._outcome).inc()
        if self._num_prompt_tokens:
            self._metrics.request_latency.observe(elapsed_s)
        log.info(
            "%s: %s after %.3f s, %d prompt tokens, %d generated",
            self._request_id,
            self._outcome,
            elapsed_s,
            self._num_prompt_tokens,
            self._num_tokens,
            extra={"request_id": self._request_id, "outcome": self._outcome},
        )

    def _failure(self, raised: BaseException | None) -> JetwayError | None:
        if isinstance(raised, JetwayError):
            return raised
        if isinstance(raised, Exception):
            return Internal(str(raised))
        if self._error is not None:
            return self._error
        # Left while choices are open, or by a cancellation: nobody waits for the rest.
        return Cancelled("the call was left") if raised is not None or self._num_open else None
