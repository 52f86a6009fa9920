"""The scheduler's figures as a message."""

from collections.abc import Mapping
from dataclasses import asdict

from jetway.scheduler.plan import EngineDescription
from jetway.scheduler.stats import Histogram, Stats
from jetway.v1 import scheduler_pb2

from .watchdog import Pace
from .wire import description_to_proto

_COUNTS = (
    "num_losses",
    "num_steps",
    "num_computed_tokens",
    "num_sampled_tokens",
    "num_recomputed_tokens",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_copied_out_blocks",
    "num_copied_in_blocks",
    "copied_out_s",
    "copied_in_s",
    "wait_error_s",
    "num_waits_estimated",
)


def stats_to_proto(stats: Stats, engine: EngineDescription, pace: Pace, now: float) -> scheduler_pb2.StatsResponse:
    last = pace.last_step
    return scheduler_pb2.StatsResponse(
        engine=description_to_proto(engine),
        num_running=stats.num_running,
        max_num_seqs=stats.max_num_seqs,
        num_waiting=stats.num_waiting,
        num_free_device_blocks=stats.num_free_device_blocks,
        num_free_host_blocks=stats.num_free_host_blocks,
        preemptions=[
            scheduler_pb2.PreemptionCount(reason=reason, mode=mode, count=count)
            for (reason, mode), count in stats.counters.preemptions.items()
        ],
        classes=[scheduler_pb2.ClassStats(**asdict(each)) for each in stats.classes],
        served_tokens=stats.counters.served_tokens,
        blocked=stats.blocked,
        rejections={limit.value: count for limit, count in stats.counters.rejections.items()},
        queue_times=_histograms(stats.counters.queue_times),
        prefill_times=_histograms(stats.counters.prefill_times),
        decode_times=_histograms(stats.counters.decode_times),
        executor_attached=pace.is_attached,
        seconds_since_step=pace.seconds_since_step,
        last_step_ago_s=None if last is None else now - last.committed_at,
        last_step_elapsed_s=None if last is None else last.elapsed_s,
        steps_per_s=pace.steps_per_s,
        sampled_tokens_per_s=pace.sampled_tokens_per_s,
        **{name: getattr(stats.counters, name) for name in _COUNTS},
    )


def _histograms(by_class: Mapping[str, Histogram]) -> dict[str, scheduler_pb2.Histogram]:
    return {
        name: scheduler_pb2.Histogram(bounds=each.bounds, counts=each.counts, total=each.total)
        for name, each in by_class.items()
    }
