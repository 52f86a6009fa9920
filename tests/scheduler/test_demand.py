"""The computed answer to overload: when to come back, and how long a newcomer waits."""

from typing import Any

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass
from tests.support.scheduling import Driver, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1, max_queued_requests=5)
LOW = ServiceClass(name="low", level=2, max_queued_requests=5)


def busy_driver() -> Driver:
    """One slot, 100 tokens served in 10 s by the high class: 10 tokens a second, 11 output tokens a request."""
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
    for index in range(5):
        driver.scheduler.add(make_request(f"h{index}", prompt_len=10, max_tokens=11, service_class="high"), driver.now)
        while driver.scheduler.stats(0.0).num_running or driver.scheduler.stats(0.0).num_waiting:
            plan = driver.scheduler.plan(driver.now)
            if plan is None:
                break
            driver.now += 0.1 * sum(plan.row_tokens)
            driver.scheduler.commit(driver.executor.run(plan), driver.now)
        driver.scheduler.events()
    return driver


def refusal(driver: Driver, service_class: str, id: str = "refused") -> QueueFull:
    with pytest.raises(QueueFull) as full:
        driver.scheduler.add(make_request(id, prompt_len=10, max_tokens=11, service_class=service_class), driver.now)
    return full.value


def fill(driver: Driver, service_class: str, count: int, **fields: Any) -> None:
    for index in range(count):
        request = make_request(
            f"{service_class}{index}", **{"prompt_len": 10, "max_tokens": 11, **fields}, service_class=service_class
        )
        driver.scheduler.add(request, driver.now)


def test_retry_after_is_the_queued_work_over_the_measured_rate() -> None:
    """Five requests of 10 + 11 tokens at 10 tokens a second: 10.5 s, with a tenth of jitter by key."""
    driver = busy_driver()
    fill(driver, "high", 5)
    answers = {refusal(driver, "high", str(key)).retry_after_s for key in range(50)}
    assert answers <= {10, 11, 12}
    assert len(answers) > 1
    assert refusal(driver, "high", "7").retry_after_s == refusal(driver, "high", "7").retry_after_s


def test_it_counts_what_better_levels_have_queued_and_not_what_worse_ones_have() -> None:
    driver = busy_driver()
    fill(driver, "low", 5)
    fill(driver, "high", 5)
    low, high = refusal(driver, "low").retry_after_s, refusal(driver, "high").retry_after_s
    assert low is not None and high is not None
    assert low == pytest.approx(2 * high, abs=2)


def test_expected_output_is_the_class_average_but_never_more_than_max_tokens() -> None:
    """High requests generate 11 tokens on average: 5 that may generate 200 are expected to generate 11, 5 of 1 just 1."""
    for max_tokens, expected_s in [(200, 10.5), (1, 5.5)]:
        driver = busy_driver()
        fill(driver, "high", 5, max_tokens=max_tokens)
        stats = {each.name: each for each in driver.scheduler.stats(driver.now).classes}
        assert stats["high"].expected_wait_s == pytest.approx(expected_s, rel=0.01)


def test_it_stays_within_a_second_and_a_minute() -> None:
    driver = busy_driver()
    fill(driver, "high", 5, prompt_len=300)
    assert refusal(driver, "high").retry_after_s == 60
    fresh = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH]))
    fill(fresh, "high", 5)
    assert refusal(fresh, "high").retry_after_s == 1, "no rate is known yet"


def test_the_error_of_the_estimates_is_counted() -> None:
    driver = busy_driver()
    fill(driver, "high", 1)
    driver.now += 4.0
    driver.step()
    counters = driver.scheduler.stats(driver.now).counters
    assert counters.num_waits_estimated == 5
    assert counters.wait_error_s == pytest.approx(4.0)
