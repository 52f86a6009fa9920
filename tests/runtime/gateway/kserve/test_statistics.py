"""What is counted of inferences, and how their time divides."""

import pytest

from jetway.runtime.errors import EngineFailed
from jetway.runtime.gateway.answer import Span
from jetway.runtime.gateway.kserve.catalog import Model
from jetway.runtime.gateway.kserve.dialects.text import TextDialect
from jetway.runtime.gateway.kserve.statistics import Statistics

MODEL = Model("ensemble", TextDialect())


def test_time_divides_into_preparing_waiting_and_computing() -> None:
    statistics = Statistics()
    for span in (Span(10.25, 0.5, 12.0), Span(11.0, 1.0, 11.999), None):
        with statistics.inference(MODEL) as timing:
            timing.started_at = 10.0
            timing.span = span
    said = statistics.of(MODEL)["inference_stats"]
    assert said["success"]["count"] == 3
    assert {name: said[name] for name in ("queue", "compute_input", "compute_infer")} == {
        "queue": {"count": 2, "ns": 1_500_000_000},
        "compute_input": {"count": 2, "ns": 1_250_000_000},
        "compute_infer": {"count": 2, "ns": 1_250_000_000},
    }


def test_a_failure_is_only_counted() -> None:
    statistics = Statistics()
    with pytest.raises(EngineFailed), statistics.inference(MODEL) as timing:
        timing.span = Span(10.25, 0.5, 12.0)
        raise EngineFailed("it broke")
    said = statistics.of(MODEL)
    assert said["inference_count"] == said["inference_stats"]["queue"]["count"] == 0
    assert said["inference_stats"]["fail"]["count"] == 1
