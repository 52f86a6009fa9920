"""What bounds prefills: sequences, tokens of one prompt, company, mixing, and the inter-token objective."""

from dataclasses import replace
from typing import Any

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.limits import Limits
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.scheduler import Scheduler
from tests.support.scheduling import Driver, ReferenceExecutor, expected_tokens, make_engine, make_request


def make_driver(*, classes: tuple[ServiceClass, ...] = (ServiceClass(),), **limits: object) -> Driver:
    fields = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "watermark": 0.0, **limits}
    return Driver(Scheduler(Limits(**fields), classes, make_engine()))  # type: ignore[arg-type]  # fields of Limits


def rows(driver: Driver) -> list[list[int]]:
    """The tokens of each row, plan by plan, without the empty plans."""
    return [list(plan.row_tokens) for plan in driver.plans if plan.row_tokens]


def add(driver: Driver, id: str, *, at: float | None = None, **fields: Any) -> None:
    driver.scheduler.add(make_request(id, **fields), driver.now if at is None else at)


def test_so_many_sequences_prefill_in_one_step() -> None:
    driver = make_driver(max_prefill_seqs=2)
    for id in "abc":
        add(driver, id, prompt_len=5, max_tokens=2)
    driver.run()
    assert rows(driver) == [[5, 5], [1, 1, 5], [1]]


def test_a_long_prompt_leaves_room_for_others_but_not_when_alone() -> None:
    driver = make_driver(long_prefill_token_threshold=8)
    add(driver, "long", prompt_len=60, max_tokens=1)
    driver.run()
    assert rows(driver) == [[60]]
    add(driver, "short", prompt_len=4, max_tokens=4)
    driver.step()
    add(driver, "long again", prompt_len=20, max_tokens=1)
    driver.run()
    assert rows(driver)[1:] == [[4], [1, 8], [1, 8], [1, 4]]


def test_a_thin_batch_waits_for_company_and_not_longer() -> None:
    driver = make_driver(max_waiting_time_s=2.0)
    add(driver, "a", prompt_len=5, max_tokens=1, at=0.0)
    assert driver.step() is None
    assert driver.scheduler.wake_at() == 2.0
    driver.now = 1.0
    add(driver, "b", prompt_len=6, max_tokens=1)
    assert driver.step() is None
    driver.now = 2.0
    driver.step()
    assert rows(driver) == [[5, 6]]


def test_a_full_batch_does_not_wait() -> None:
    driver = make_driver(max_waiting_time_s=2.0)
    add(driver, "a", prompt_len=40, max_tokens=1)
    add(driver, "b", prompt_len=40, max_tokens=1)
    driver.step()
    assert rows(driver) == [[40, 24]]


def test_what_could_displace_never_waits_for_company() -> None:
    classes = (ServiceClass(name="high", level=1), ServiceClass(name="low", level=2))
    driver = make_driver(classes=classes, max_waiting_time_s=2.0, max_num_seqs=1)
    add(driver, "low", prompt_len=64, max_tokens=9, service_class="low")
    driver.step()
    add(driver, "high", prompt_len=4, max_tokens=1, service_class="high")
    driver.step()
    assert [start.sequence_id.request_id for plan in driver.plans for start in plan.starts] == ["low", "high"]


def test_unmixed_steps_prefill_or_decode_and_starve_neither() -> None:
    driver = make_driver(mix_prefill=False)
    for id in "ab":
        add(driver, id, prompt_len=5, max_tokens=3)
    driver.step()
    add(driver, "c", prompt_len=7, max_tokens=3)
    driver.run()
    assert rows(driver) == [[5, 5], [1, 1], [7], [1, 1, 1], [1]]
    assert driver.tokens("c") == expected_tokens(make_request("c", prompt_len=7, max_tokens=3))


class TimedExecutor(ReferenceExecutor):
    """Steps take 10 ms and 1 ms a prefill token."""

    def run(self, plan: StepPlan) -> StepResult:
        prefill = sum(count for count in plan.row_tokens if count > 1)
        return replace(super().run(plan), elapsed_s=0.010 + 0.001 * prefill)


def test_the_budget_keeps_the_tightest_inter_token_objective() -> None:
    """Once the step times are known, an objective of 30.5 ms leaves 20 tokens beside the decode."""
    driver = make_driver(classes=(ServiceClass(name="fast", itl_objective_s=0.0305), ServiceClass(name="bulk")))
    driver.executor = TimedExecutor()
    for size in range(4, 44):
        add(driver, f"teach{size}", prompt_len=size, max_tokens=3, service_class="bulk")
        driver.run()
    add(driver, "fast", prompt_len=4, max_tokens=30, service_class="fast")
    driver.step()
    add(driver, "bulk", prompt_len=60, max_tokens=1, service_class="bulk")
    driver.step()
    assert rows(driver)[-1] == [1, 20]
