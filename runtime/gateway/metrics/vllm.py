"""Figures under vLLM's names, where they mean the same, for dashboards that exist."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import Metric

from jetway.scheduler.stats import Blocked


class _Label(NamedTuple):
    """A label of ours, vLLM's for it, and its values; samples whose value is not among them are left out."""

    ours: str
    name: str
    values: Mapping[str, str]


class _Renaming(NamedTuple):
    """Labels that vLLM does not know are summed over, `le` apart."""

    name: str
    label: _Label | None = None


_OUTCOMES = {"stop": "stop", "length": "length", "cancelled": "abort"}
_DEFERRED = (Blocked.RESULT, Blocked.HELD, Blocked.CLASS, Blocked.PREFIX)  # though there may be room
_REASONS = {reason.value: "deferred" if reason in _DEFERRED else "capacity" for reason in Blocked}
NAMES = {
    "jetway_running_sequences": _Renaming("vllm:num_requests_running"),
    "jetway_waiting_sequences": _Renaming("vllm:num_requests_waiting"),
    "jetway_kv_cache_usage_ratio": _Renaming("vllm:kv_cache_usage_perc"),
    "jetway_preemptions": _Renaming("vllm:num_preemptions"),
    "jetway_prefix_cache_queried_tokens": _Renaming("vllm:prefix_cache_queries"),
    "jetway_prefix_cache_hit_tokens": _Renaming("vllm:prefix_cache_hits"),
    "jetway_prompt_tokens": _Renaming("vllm:prompt_tokens"),
    "jetway_generation_tokens": _Renaming("vllm:generation_tokens"),
    "jetway_time_to_first_token_seconds": _Renaming("vllm:time_to_first_token_seconds"),
    "jetway_inter_token_latency_seconds": _Renaming("vllm:inter_token_latency_seconds"),
    "jetway_request_latency_seconds": _Renaming("vllm:e2e_request_latency_seconds"),
    "jetway_queue_time_seconds": _Renaming("vllm:request_queue_time_seconds"),
    "jetway_prefill_time_seconds": _Renaming("vllm:request_prefill_time_seconds"),
    "jetway_decode_time_seconds": _Renaming("vllm:request_decode_time_seconds"),
    "jetway_class_waiting_sequences": _Renaming(
        "vllm:num_requests_waiting_by_reason", _Label("reason", "reason", _REASONS)
    ),
    "jetway_requests": _Renaming("vllm:request_success", _Label("outcome", "finished_reason", _OUTCOMES)),
}


def renamed(families: Iterable[Metric], model_name: str) -> Iterator[Metric]:
    """Those of the families that vLLM has too, with its names and its label `model_name`."""
    for family in families:
        if (renaming := NAMES.get(family.name)) is not None:
            yield _renamed(family, renaming, model_name)


def _renamed(family: Metric, renaming: _Renaming, model_name: str) -> Metric:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        labels = {"model_name": model_name} | {key: value for key, value in sample.labels.items() if key == "le"}
        if label := renaming.label:
            if (value := sample.labels[label.ours]) not in label.values:
                continue
            labels[label.name] = label.values[value]
        key = (sample.name.removeprefix(family.name), tuple(labels.items()))
        sums[key] = sums.get(key, 0.0) + sample.value
    metric = Metric(renaming.name, family.documentation, family.type)
    for (suffix, labels_items), total in sums.items():
        metric.add_sample(renaming.name + suffix, dict(labels_items), total)
    return metric
