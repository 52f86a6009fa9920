"""Figures under vLLM's names: labels that it does not know are summed over."""

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from jetway.runtime.gateway.metrics.vllm import renamed


def samples(*families: Metric) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by sample name and by the values of the labels."""
    told: dict[str, dict[tuple[str, ...], float]] = {}
    for family in renamed(families, "m"):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                told.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return told


def test_gauge_gets_the_name_and_the_model() -> None:
    family = GaugeMetricFamily("jetway_running_sequences", "help", value=3)

    assert samples(family) == {"vllm:num_requests_running": {("m",): 3}}


def test_counter_is_summed_over_labels() -> None:
    family = CounterMetricFamily("jetway_preemptions", "help", labels=["reason", "mode"])
    family.add_metric(["priority", "swap"], 2)
    family.add_metric(["kv_full", "swap"], 3)

    assert samples(family) == {"vllm:num_preemptions_total": {("m",): 5}}


def test_outcomes_become_finished_reasons() -> None:
    registry = CollectorRegistry()
    requests = Counter("jetway_requests", "help", ["outcome"], registry=registry)
    for outcome, count in {"stop": 1, "length": 2, "cancelled": 3, "invalid_argument": 4}.items():
        requests.labels(outcome).inc(count)

    assert samples(*registry.collect()) == {
        "vllm:request_success_total": {("m", "stop"): 1, ("m", "length"): 2, ("m", "abort"): 3}
    }


def test_reasons_become_vllms_two_over_all_classes() -> None:
    """ "deferred" is what waits for something else than room."""
    family = GaugeMetricFamily("jetway_class_waiting_sequences", "help", labels=["class", "reason"])
    for name, reason, count in [("a", "the token budget is spent", 2), ("b", "the token budget is spent", 3),
                                ("b", "another sequence is computing its prefix", 4)]:  # fmt: skip
        family.add_metric([name, reason], count)

    assert samples(family) == {"vllm:num_requests_waiting_by_reason": {("m", "capacity"): 5, ("m", "deferred"): 4}}


def test_histogram_keeps_its_buckets() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("jetway_request_latency_seconds", "help", buckets=[1, 2], registry=registry)
    histogram.observe(1.5)

    assert samples(*registry.collect()) == {
        "vllm:e2e_request_latency_seconds_bucket": {("m", "1.0"): 0, ("m", "2.0"): 1, ("m", "+Inf"): 1},
        "vllm:e2e_request_latency_seconds_count": {("m",): 1},
        "vllm:e2e_request_latency_seconds_sum": {("m",): 1.5},
    }


def test_figure_that_vllm_does_not_have_is_left_out() -> None:
    assert samples(GaugeMetricFamily("jetway_free_host_blocks", "help", value=1)) == {}
