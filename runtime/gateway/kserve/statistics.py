"""How many requests each model has answered, and how long that took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from jetway.runtime.gateway.answer import Span

from .catalog import VERSION, Model
from .describe import Json


@dataclass(slots=True)
class _Durations:
    count: int = 0
    total_s: float = 0.0

    def add(self, duration_s: float) -> None:
        self.count += 1
        self.total_s += duration_s

    def as_json(self) -> Json:
        return {"count": self.count, "ns": round(1e9 * self.total_s)}


@dataclass(slots=True)
class _ModelStatistics:
    """Named as in Triton. `compute_input` is until the scheduler is asked, `compute_infer` from start to end."""

    success: _Durations = field(default_factory=_Durations)
    fail: _Durations = field(default_factory=_Durations)
    queue: _Durations = field(default_factory=_Durations)
    compute_input: _Durations = field(default_factory=_Durations)
    compute_infer: _Durations = field(default_factory=_Durations)
    last_inference_ms: int = 0  # since the epoch

    def add(self, started_at: float, span: Span) -> None:
        self.compute_input.add(span.submitted_at - started_at)
        self.queue.add(span.queued_s)
        # Not below 0: a scheduler that took over knows to a millisecond how long a request had waited.
        self.compute_infer.add(max(0.0, span.ended_at - span.submitted_at - span.queued_s))


@dataclass(slots=True)
class Timing:
    """Of one inference. `span` is set by whoever has its answer, as far as it is known."""

    started_at: float = field(default_factory=time.monotonic)
    span: Span | None = None


class Statistics:
    def __init__(self) -> None:
        self._models: dict[str, _ModelStatistics] = {}

    @contextmanager
    def inference(self, model: Model) -> Iterator[Timing]:
        """Counted as a failure when it raises; not at all when nobody waits for it any more."""
        statistics = self._models.setdefault(model.name, _ModelStatistics())
        timing = Timing()
        try:
            yield timing
        except Exception:
            statistics.fail.add(time.monotonic() - timing.started_at)
            raise
        statistics.success.add(time.monotonic() - timing.started_at)
        statistics.last_inference_ms = time.time_ns() // 1_000_000
        if timing.span is not None:
            statistics.add(timing.started_at, timing.span)

    def of(self, model: Model) -> Json:
        """Writing an answer goes on while it is computed, so there is no `compute_output`."""
        statistics = self._models.get(model.name, _ModelStatistics())
        durations = ("success", "fail", "queue", "compute_input", "compute_infer")
        return {
            "name": model.name,
            "version": VERSION,
            "last_inference": statistics.last_inference_ms,
            "inference_count": statistics.success.count,
            "execution_count": statistics.success.count,
            "inference_stats": {name: getattr(statistics, name).as_json() for name in durations},
        }
