"""One call's outcome, times and counts, in the metrics and in the log."""

import asyncio
import logging

import pytest

from jetway.runtime.errors import EngineFailed, Internal, InvalidArgument
from jetway.runtime.gateway.metrics.instruments import Metrics
from jetway.runtime.gateway.watch import Watch
from tests.support.fake_scheduler import LENGTH, STOP


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def outcomes(metrics: Metrics) -> dict[str, float]:
    return {
        sample.labels["outcome"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "jetway_requests_total"
    }


def test_call_that_ends_is_counted_with_its_tokens_and_times() -> None:
    metrics = Metrics()
    with Watch(metrics, "r") as watch:
        assert sample(metrics, "jetway_live_requests") == 1
        watch.accepted(num_choices=2, num_prompt_tokens=5)
        watch.gained(0, 1)
        watch.gained(1, 1)
        watch.gained(0, 3)
        watch.choice_ended(STOP, None)
        watch.choice_ended(LENGTH, None)

    assert outcomes(metrics) == {"length": 1}
    assert sample(metrics, "jetway_live_requests") == 0
    assert sample(metrics, "jetway_prompt_tokens_total") == 5
    assert sample(metrics, "jetway_generation_tokens_total") == 5
    assert sample(metrics, "jetway_time_to_first_token_seconds_count") == 1
    assert sample(metrics, "jetway_inter_token_latency_seconds_count") == 1  # one a delta, but the first of a choice
    assert sample(metrics, "jetway_request_latency_seconds_count") == 1


def test_call_whose_choices_all_stop_ends_as_stop() -> None:
    metrics = Metrics()
    with Watch(metrics, "r") as watch:
        watch.accepted(1, 5)
        watch.choice_ended(STOP, None)

    assert outcomes(metrics) == {"stop": 1}


def test_call_that_is_refused_has_the_code_of_its_error_and_no_latency() -> None:
    metrics = Metrics()
    with pytest.raises(InvalidArgument), Watch(metrics, "r"):
        raise InvalidArgument("no")

    assert outcomes(metrics) == {"invalid_argument": 1}
    assert sample(metrics, "jetway_request_latency_seconds_count") == 0


def test_call_with_a_choice_that_failed_has_failed() -> None:
    metrics = Metrics()
    with Watch(metrics, "r") as watch:
        watch.accepted(2, 5)
        watch.choice_ended(LENGTH, None)
        watch.choice_ended(STOP, EngineFailed("NaN"))

    assert outcomes(metrics) == {"engine_failed": 1}


def test_call_that_is_left_early_is_cancelled() -> None:
    metrics = Metrics()
    with Watch(metrics, "r") as watch:
        watch.accepted(1, 5)
    with pytest.raises(asyncio.CancelledError), Watch(metrics, "r"):
        raise asyncio.CancelledError

    assert outcomes(metrics) == {"cancelled": 2}


def test_fault_is_internal() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError), Watch(metrics, "r"):
        raise KeyError("a fault")

    assert outcomes(metrics) == {"internal": 1}


def test_failure_that_is_raised_to_nobody_is_the_outcome() -> None:
    metrics = Metrics()
    with Watch(metrics, "r") as watch:
        watch.accepted(1, 5)
        watch.failed(Internal("a fault"))

    assert outcomes(metrics) == {"internal": 1}


def test_log_names_the_request_and_its_outcome(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Watch(Metrics(), "chatcmpl-1") as watch:
        watch.accepted(1, 5)
        watch.gained(0, 2)
        watch.choice_ended(STOP, None)

    [record] = caplog.records
    assert record.message.startswith("chatcmpl-1: stop after ")
    assert record.message.endswith(" s, 5 prompt tokens, 2 generated")
    assert (record.__dict__["request_id"], record.__dict__["outcome"]) == ("chatcmpl-1", "stop")
