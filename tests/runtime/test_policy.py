"""The scheduler's settings in the scheduler's words, and what the policies make of the same requests."""

import pytest

from jetway.runtime.config import SchedulerConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.named_config import ClassConfig, TenantConfig
from jetway.runtime.policy import limits, service_classes, tenant_weights
from jetway.runtime.serve import make_scheduler
from jetway.scheduler.classes import DEFAULT_CLASSES, ServiceClass, TimeoutAction
from jetway.scheduler.limits import Limits, PreemptionMode
from jetway.scheduler.preemption import Reluctance
from tests.support.scheduling import Driver, make_engine, make_request

ENGINE = make_engine(max_num_seqs=8)


def test_defaults_are_the_schedulers_own() -> None:
    assert limits(SchedulerConfig(), ENGINE) == Limits(max_num_seqs=8, max_num_batched_tokens=1024)
    assert service_classes(None, {"standard": ClassConfig(level=2)}) == (ServiceClass(),)


def test_every_limit_can_be_set() -> None:
    settings = SchedulerConfig(
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_prefill_seqs=2,
        long_prefill_token_threshold=32,
        max_waiting_time_s=0.5,
        mix_prefill=False,
        aged_slots=1,
        preemption_mode="swap",
        min_steps_between_preemptions=3,
        max_preemptions=5,
        write_through=True,
        watermark=0.25,
    )
    assert limits(settings, ENGINE) == Limits(
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_prefill_seqs=2,
        long_prefill_token_threshold=32,
        max_waiting_time_s=0.5,
        mix_prefill=False,
        aged_slots=1,
        preemption_mode=PreemptionMode.SWAP,
        reluctance=Reluctance(min_steps_between=3, max_preemptions=5),
        write_through=True,
        watermark=0.25,
    )


def test_every_field_of_a_class_can_be_set() -> None:
    given = ClassConfig(
        level=3,
        weight=0.5,
        share_fairly=False,
        share_prefix=True,
        max_queued_requests=10,
        max_queued_tokens=1000,
        max_running=2,
        max_wait_s=60.0,
        queue_timeout_s=30.0,
        queue_timeout_action="delay",
        itl_objective_s=0.05,
        default_deadline_s=90.0,
    )
    (made,) = service_classes(None, {"batch": given})
    assert made == ServiceClass(
        name="batch",
        level=3,
        weight=0.5,
        share_fairly=False,
        share_prefix=True,
        max_queued_requests=10,
        max_queued_tokens=1000,
        max_running=2,
        max_wait_s=60.0,
        queue_timeout_s=30.0,
        queue_timeout_action=TimeoutAction.DELAY,
        itl_objective_s=0.05,
        default_deadline_s=90.0,
    )
    assert made.queue_timeout_action is TimeoutAction.DELAY


def test_strict_is_what_nothing_given_means() -> None:
    assert service_classes(None, {}) == service_classes("strict", {}) == DEFAULT_CLASSES


def test_tenants_have_weights() -> None:
    assert tenant_weights({"acme": TenantConfig(weight=2.0), "other": TenantConfig()}) == {"acme": 2.0, "other": 1.0}


ARRIVALS = ("batch", "standard", "interactive", "batch", "interactive")


def order_of_starts(settings: SchedulerConfig) -> list[str]:
    """Five requests at once on one slot."""
    driver = Driver(make_scheduler(settings, make_engine(max_num_seqs=1)))
    for number, name in enumerate(ARRIVALS):
        request = make_request(f"{name}{number}", service_class=name, priority=-number, tenant=f"tenant{number % 2}")
        driver.scheduler.add(request, 0.0)
    driver.run()
    return [start.sequence_id.request_id for plan in driver.plans for start in plan.starts]


def test_fcfs_is_the_order_of_arrival_whatever_a_request_says() -> None:
    assert order_of_starts(SchedulerConfig(policy="fcfs")) == [
        f"{name}{number}" for number, name in enumerate(ARRIVALS)
    ]


def test_strict_is_the_order_of_levels() -> None:
    order = order_of_starts(SchedulerConfig(policy="strict"))
    assert [name.rstrip("0123456789") for name in order] == ["interactive"] * 2 + ["standard"] + ["batch"] * 2


def test_weighted_shares_one_level_by_weight() -> None:
    driver = Driver(make_scheduler(SchedulerConfig(policy="weighted"), make_engine(max_num_seqs=1)))
    for number in range(40):
        for name in ("batch", "standard", "interactive"):
            driver.scheduler.add(make_request(f"{name}{number}", service_class=name), 0.0)
    while len(driver.finishes()) < 42:
        driver.step()
    finished = [name.split("#")[0].rstrip("0123456789") for name in driver.finishes()]
    counts = [sum(each.startswith(name) for each in finished) for name in ("interactive", "standard", "batch")]
    assert counts == [24, 12, 6]  # 4 : 2 : 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SchedulerConfig(aged_slots=9), r"aged_slots must be in \[0, max_num_seqs = 8\], not 9"),
        (SchedulerConfig(max_num_seqs=9), "max_num_seqs is 9, but the engine was built for 8"),
        (SchedulerConfig(max_num_batched_tokens=11), "max_num_batched_tokens is 11; it must be at least 12"),
    ],
)
def test_limits_that_contradict_the_engine_are_named(settings: SchedulerConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_scheduler(settings, ENGINE)
