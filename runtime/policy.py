"""The scheduler's settings in the scheduler's words: limits, service classes and shares."""

from collections.abc import Mapping
from dataclasses import asdict

from jetway.scheduler.classes import BATCH, DEFAULT_CLASSES, INTERACTIVE, STANDARD, ServiceClass, TimeoutAction
from jetway.scheduler.limits import Limits, PreemptionMode
from jetway.scheduler.plan import EngineDescription
from jetway.scheduler.preemption import Reluctance

from .config import SchedulerConfig
from .named_config import ClassConfig, TenantConfig
from .overlap import num_micro_batches

FCFS = "fcfs"
POLICIES: dict[str, tuple[ServiceClass, ...]] = {
    "strict": DEFAULT_CLASSES,
    "weighted": (
        ServiceClass(name=INTERACTIVE, level=1, weight=4.0),
        ServiceClass(name=STANDARD, level=1, weight=2.0),
        ServiceClass(name=BATCH, level=1, weight=1.0),
    ),
    FCFS: (ServiceClass(name=STANDARD, level=1, share_fairly=False),),
}


def limits(settings: SchedulerConfig, engine: EngineDescription) -> Limits:
    """The settings, and where they say nothing, what the engine was built for. Raises LimitError."""
    return Limits(
        max_num_seqs=settings.max_num_seqs or engine.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens or engine.max_num_batched_tokens,
        preemption_mode=PreemptionMode(settings.preemption_mode),
        reluctance=Reluctance(
            min_steps_between=settings.min_steps_between_preemptions, max_preemptions=settings.max_preemptions
        ),
        aged_slots=settings.aged_slots,
        watermark=settings.watermark,
        write_through=settings.write_through,
        max_prefill_seqs=settings.max_prefill_seqs,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        max_waiting_time_s=settings.max_waiting_time_s,
        mix_prefill=settings.mix_prefill,
        num_micro_batches=num_micro_batches(settings.overlap, engine.num_stages),
    )


def service_classes(policy: str | None, classes: Mapping[str, ClassConfig]) -> tuple[ServiceClass, ...]:
    """The classes that are given, else those of the policy, else the strict ones. Raises ClassError."""
    if not classes:
        return POLICIES[policy or "strict"]
    return tuple(
        ServiceClass(name=name, **{**asdict(given), "queue_timeout_action": TimeoutAction(given.queue_timeout_action)})
        for name, given in classes.items()
    )


def tenant_weights(tenants: Mapping[str, TenantConfig]) -> dict[str, float]:
    return {name: tenant.weight for name, tenant in tenants.items()}
