"""How many requests each model has answered, and how long that took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .catalog import VERSION, Model
from .describe import Json


@dataclass(slots=True)
class _Durations:
    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


@dataclass(slots=True)
class _ModelStatistics:
    success: _Durations = field(default_factory=_Durations)
    fail: _Durations = field(default_factory=_Durations)
    last_inference_ms: int = 0  # since the epoch


class Statistics:
    def __init__(self) -> None:
        self._models: dict[str, _ModelStatistics] = {}

    @contextmanager
    def inference(self, model: Model) -> Iterator[None]:
        """Counted as a failure when it raises; not at all when nobody waits for it any more."""
        statistics = self._models.setdefault(model.name, _ModelStatistics())
        started_ns = time.perf_counter_ns()
        try:
            yield
        except Exception:
            statistics.fail.add(time.perf_counter_ns() - started_ns)
            raise
        statistics.success.add(time.perf_counter_ns() - started_ns)
        statistics.last_inference_ms = time.time_ns() // 1_000_000

    def of(self, model: Model) -> Json:
        """What the gateway cannot know, how long a request queued and computed, is left out."""
        statistics = self._models.get(model.name, _ModelStatistics())
        success, fail = statistics.success, statistics.fail
        return {
            "name": model.name,
            "version": VERSION,
            "last_inference": statistics.last_inference_ms,
            "inference_count": success.count,
            "execution_count": success.count,
            "inference_stats": {
                "success": {"count": success.count, "ns": success.ns},
                "fail": {"count": fail.count, "ns": fail.ns},
            },
        }
