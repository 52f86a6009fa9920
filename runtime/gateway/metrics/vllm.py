"""Figures under vLLM's names, where they mean the same, for dashboards that exist."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric


@dataclass(frozen=True, slots=True)
class _Renaming:
    """Labels that vLLM does not know are summed over, `le` apart; samples whose outcome is not named are left out."""

    name: str
    outcomes: Mapping[str, str] = field(default_factory=dict)  # values of `outcome` to those of `finished_reason`


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
    "jetway_requests": _Renaming(
        "vllm:request_success", {"stop": "stop", "length": "length", "cancelled": "abort"}
    ),
}  # fmt: skip


def renamed(families: Iterable[Metric], model_name: str) -> Iterator[Metric]:
    """Those of the families that vLLM has too, with its names and its label `model_name`."""
    for family in families:
        if (renaming := NAMES.get(family.name)) is not None:
            yield _renamed(family, renaming, model_name)


def _renamed(family: Metric, renaming: _Renaming, model_name: str) -> Metric:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        labels = {"model_name": model_name} | {key: value for key, value in sample.labels.items() if key == "le"}
        if renaming.outcomes:
            if (outcome := sample.labels["outcome"]) not in renaming.outcomes:
                continue
            labels["finished_reason"] = renaming.outcomes[outcome]
        key = (sample.name.removeprefix(family.name), tuple(labels.items()))
        sums[key] = sums.get(key, 0.0) + sample.value
    metric = Metric(renaming.name, family.documentation, family.type)
    for (suffix, labels_items), value in sums.items():
        metric.add_sample(renaming.name + suffix, dict(labels_items), value)
    return metric
