"""The scheduler's figures, as its Stats call says them, as metric families."""

from collections.abc import Iterator
from itertools import accumulate, product
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.stats import Blocked, PreemptionReason, Rejection
from jetway.v1 import scheduler_pb2


class _Figure(NamedTuple):
    """A field of a message, and what it is called outside."""

    field: str
    name: str
    help: str


_GAUGES = (
    _Figure("num_running", "jetway_running_sequences", "Sequences that are resident."),
    _Figure("max_num_seqs", "jetway_slots", "Sequences that may be resident."),
    _Figure("num_waiting", "jetway_waiting_sequences", "Sequences that wait, preempted ones included."),
    _Figure("num_free_device_blocks", "jetway_free_device_blocks", "Blocks of the device pool that nobody holds."),
    _Figure("num_free_host_blocks", "jetway_free_host_blocks", "Blocks of the host pool that nobody holds."),
    _Figure("executor_attached", "jetway_executor_attached", "1 while an executor is there."),
    _Figure(
        "seconds_since_step", "jetway_seconds_since_step", "How long work has waited for a step's end; 0 without work."
    ),
)
_COUNTERS = (
    _Figure("num_losses", "jetway_executor_losses", "Executors lost; every request went on with the next."),
    _Figure("num_steps", "jetway_steps", "Steps committed."),
    _Figure("num_computed_tokens", "jetway_computed_tokens", "Tokens computed."),
    _Figure("num_sampled_tokens", "jetway_sampled_tokens", "Tokens sampled, overshoot included."),
    _Figure("num_recomputed_tokens", "jetway_recomputed_tokens", "Tokens computed again after a preemption or a loss."),
    _Figure("num_prompt_tokens", "jetway_prefix_cache_queried_tokens", "Prompt tokens of sequences that started."),
    _Figure("num_cached_tokens", "jetway_prefix_cache_hit_tokens", "Of those, found cached; restarts do not count."),
    _Figure("wait_error_s", "jetway_wait_estimate_error_seconds", "By how much estimated waits were wrong, in all."),
    _Figure("num_waits_estimated", "jetway_wait_estimates", "Waits that were estimated."),
)
_TIMES = (
    _Figure("queue_times", "jetway_queue_time_seconds", "From a sequence's arrival to its first start."),
    _Figure("prefill_times", "jetway_prefill_time_seconds", "From a sequence's first start to its first token."),
    _Figure("decode_times", "jetway_decode_time_seconds", "From its first token to its last, unless it was cut short."),
)
_CLASS_GAUGES = (
    _Figure("num_running", "jetway_class_running_sequences", "Sequences of the class that are resident."),
    _Figure("num_queued", "jetway_class_queued_sequences", "Sequences of the class that wait for their first start."),
    _Figure("num_queued_tokens", "jetway_class_queued_tokens", "Tokens of their prompts."),
    _Figure("num_queued_requests", "jetway_class_queued_requests", "Requests that they belong to."),
    _Figure("num_displaced", "jetway_class_displaced_sequences", "Sequences displaced that wait to go on."),
    _Figure("oldest_wait_s", "jetway_class_oldest_wait_seconds", "Longest wait of what is queued or displaced."),
    _Figure("expected_wait_s", "jetway_class_expected_wait_seconds", "Estimated wait of a newcomer, once known."),
)
_PREEMPTION_MODES = (PreemptionMode.SWAP, PreemptionMode.RECOMPUTE)  # what can become of a sequence


def families(stats: scheduler_pb2.StatsResponse) -> Iterator[Metric]:
    for field, name, help in _GAUGES:
        yield GaugeMetricFamily(name, help, value=getattr(stats, field))
    yield GaugeMetricFamily(
        "jetway_device_blocks", "Blocks of the device pool.", value=stats.engine.num_device_blocks
    )  # fmt: skip
    yield GaugeMetricFamily("jetway_host_blocks", "Blocks of the host pool.", value=stats.engine.num_host_blocks)
    yield GaugeMetricFamily("jetway_kv_cache_usage_ratio", "Part of the device pool that is held.", value=_usage(stats))
    for field, name, help in _COUNTERS:
        yield CounterMetricFamily(name, help, value=getattr(stats, field))
    yield from _labelled(stats)
    for field, name, help in _CLASS_GAUGES:
        family = GaugeMetricFamily(name, help, labels=["class"])
        for each in stats.classes:
            if field != "expected_wait_s" or each.HasField("expected_wait_s"):
                family.add_metric([each.name], getattr(each, field))
        yield family


def _labelled(stats: scheduler_pb2.StatsResponse) -> Iterator[Metric]:
    yield from _copies(stats)
    yield _rejections(stats)
    yield from _times(stats)
    preemptions = CounterMetricFamily("jetway_preemptions", "Sequences displaced.", labels=["reason", "mode"])
    counts: dict[tuple[str, str], int] = dict.fromkeys(product(PreemptionReason, _PREEMPTION_MODES), 0)  # rates need it
    counts |= {(each.reason, each.mode): each.count for each in stats.preemptions}
    for (reason, mode), count in counts.items():
        preemptions.add_metric([reason, mode], count)
    yield preemptions
    served = CounterMetricFamily("jetway_served_tokens", "Tokens sampled for each tenant.", labels=["tenant"])
    for tenant, tokens in stats.served_tokens.items():
        served.add_metric([tenant], tokens)
    yield served
    yield from _waiting(stats)


def _times(stats: scheduler_pb2.StatsResponse) -> Iterator[Metric]:
    for field, name, help in _TIMES:
        family = HistogramMetricFamily(name, help, labels=["class"])
        for class_name, each in getattr(stats, field).items():
            bounds = [*map(str, each.bounds), "+Inf"]
            family.add_metric([class_name], list(zip(bounds, accumulate(each.counts), strict=True)), each.total)
        yield family


def _waiting(stats: scheduler_pb2.StatsResponse) -> Iterator[Metric]:
    blocked = GaugeMetricFamily(
        "jetway_blocked", "1 where the next sequence of a level waits; 0 is the aged lane.", labels=["level", "reason"]
    )
    for level, reason in stats.blocked.items():
        blocked.add_metric([str(level), reason], 1)
    yield blocked
    waiting = GaugeMetricFamily(
        "jetway_class_waiting_sequences", "Sequences queued or displaced, by why they wait.", labels=["class", "reason"]
    )
    for each in stats.classes:
        for reason in Blocked:
            waiting.add_metric([each.name, reason], each.waiting.get(reason, 0))
    yield waiting


def _rejections(stats: scheduler_pb2.StatsResponse) -> Metric:
    rejections = CounterMetricFamily(
        "jetway_rejections", "Requests refused, or given up before they started, by the limit met.", labels=["reason"]
    )
    for reason in Rejection:
        rejections.add_metric([reason], stats.rejections.get(reason, 0))
    return rejections


def _copies(stats: scheduler_pb2.StatsResponse) -> Iterator[Metric]:
    """What went to the host tier ("out") and back ("in")."""
    out, into, size = stats.num_copied_out_blocks, stats.num_copied_in_blocks, stats.engine.block_bytes
    yield _both_ways("jetway_copied_blocks", "Blocks copied between the tiers.", out, into)
    yield _both_ways("jetway_copied_bytes", "Bytes copied between the tiers.", out * size, into * size)
    yield _both_ways("jetway_copy_seconds", "Time that these copies took.", stats.copied_out_s, stats.copied_in_s)


def _both_ways(name: str, help: str, out: float, into: float) -> Metric:
    family = CounterMetricFamily(name, help, labels=["direction"])
    family.add_metric(["out"], out)
    family.add_metric(["in"], into)
    return family


def _usage(stats: scheduler_pb2.StatsResponse) -> float:
    total = stats.engine.num_device_blocks
    return (total - stats.num_free_device_blocks) / total if total else 0.0
