"""The computed answer to overload: when to come back, and how long a newcomer waits."""

from typing import Any

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.demand import Demand
from jetway.scheduler.draft import Row
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.queues import Queues
from tests.support.scheduling import Driver, make_request, make_scheduler, make_sequence

HIGH = ServiceClass(name="high", level=1, max_queued_requests=5)
LOW = ServiceClass(name="low", level=2, max_queued_requests=5)


def step(driver: Driver) -> bool:
    """One step, a tenth of a second a token. Whether there was anything to do."""
    plan = driver.scheduler.plan(driver.now)
    if plan is None:
        return False
    driver.now += 0.1 * sum(plan.row_tokens)
    driver.scheduler.commit(driver.executor.run(plan), driver.now)
    driver.log += driver.scheduler.events()
    return True


def busy_driver(*served: str, **limits: Any) -> Driver:
    """One slot, 20 tokens of each of these requests served in 2 s: 10 tokens a second, 11 output tokens a request."""
    driver = Driver(make_scheduler(**{"max_num_seqs": 1, "classes": [HIGH, LOW], **limits}))
    for index, name in enumerate(served or ("high",) * 5):
        driver.scheduler.add(make_request(f"h{index}", prompt_len=10, max_tokens=11, service_class=name), driver.now)
        while step(driver):
            pass
    return driver


def expected_wait_s(driver: Driver, service_class: str) -> float:
    waits = {each.name: each.expected_wait_s for each in driver.scheduler.stats(driver.now).classes}
    seen = waits[service_class]
    assert seen is not None
    return seen


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


def test_a_level_waits_for_what_better_ones_have_queued_at_the_rate_that_they_leave() -> None:
    """High and low in turn, so each took 5 tokens a second. High: 105 tokens at 10. Low: 210 tokens at 5."""
    driver = busy_driver(*("high", "low") * 10)
    fill(driver, "low", 5)
    fill(driver, "high", 5)
    assert expected_wait_s(driver, "high") == pytest.approx(10.5, rel=0.01)
    assert expected_wait_s(driver, "low") == pytest.approx(42.0, rel=0.1)


def test_what_a_better_level_took_before_a_pause_is_not_all_that_a_worse_one_is_left() -> None:
    """High alone for 10 s, then nothing for 90, then one low request of 2 s: high takes next to nothing."""
    driver = busy_driver()
    driver.now += 90.0
    fill(driver, "low", 1)
    while step(driver):
        pass
    fill(driver, "low", 5)
    assert expected_wait_s(driver, "low") == pytest.approx(10.5, rel=0.01)


@pytest.mark.parametrize("num_steps", [10, 100_000])
def test_a_level_that_was_quiet_is_expected_to_be_served_as_all_are(num_steps: int) -> None:
    """For however long others worked: 105 tokens at 10 tokens a second."""
    quiet = ServiceClass(name="standard", level=1)
    demand = Demand(max_num_seqs=1)
    row = Row(make_sequence("low", service_class=LOW), num_tokens=10, computed=10, samples=True, grown=None)
    for number in range(num_steps):
        demand.serve([row], 1.0, float(number + 1))
    queues = Queues([quiet, LOW], {}, num_aged_slots=0)
    assert demand.wait_s(queues, quiet.level) == 0.0
    queues.add(make_sequence("quiet", service_class=quiet, prompt_len=101))
    assert demand.wait_s(queues, quiet.level) == pytest.approx(10.5)
    assert 10 <= demand.retry_after_s(queues, quiet.level, "key") <= 12


class TestWhatRuns:
    def test_the_outputs_of_what_runs_are_waited_for(self) -> None:
        """Two slots, held by outputs of 390 tokens; the newcomer needs one of them, and 10 tokens queued are before it."""
        driver = busy_driver(max_num_seqs=2, classes=[ServiceClass(name="high", level=1)])
        for id in "ab":
            driver.scheduler.add(make_request(id, prompt_len=5, max_tokens=390, service_class="high"), driver.now)
        for _ in range(200):
            step(driver)
        assert expected_wait_s(driver, "high") > 5.0
        begun = driver.now
        driver.scheduler.add(make_request("next", prompt_len=4, max_tokens=1, service_class="high"), driver.now)
        while not driver.tokens("next"):
            step(driver)
        assert driver.now - begun == pytest.approx(38.0, rel=0.1), "as the longest that it could be"

    def test_with_a_free_slot_nobody_waits(self) -> None:
        driver = busy_driver(max_num_seqs=2)
        fill(driver, "high", 1, max_tokens=300)
        step(driver)
        assert expected_wait_s(driver, "high") == 0.0

    def test_where_blocks_are_short_fewer_than_the_slots_are_waited_for(self) -> None:
        """Eight slots, and blocks for two."""
        driver = busy_driver(max_num_seqs=8, num_blocks=20)
        driver.executor.num_blocks = 20
        for index in range(3):
            driver.scheduler.add(make_request(f"long{index}", prompt_len=36, service_class="high"), driver.now)
        for _ in range(2):
            step(driver)
        assert driver.scheduler.stats(driver.now).num_running == 2
        assert expected_wait_s(driver, "high") > 0.0
        while step(driver):
            pass
        fill(driver, "high", 5)
        assert expected_wait_s(driver, "high") == 0.0, "blocks are short no more"

    def test_what_was_displaced_is_computed_again_first(self) -> None:
        """The low request has 10 of its 11 + 10 tokens before it, and owes those that it computed."""
        driver = busy_driver()
        fill(driver, "low", 1)
        for _ in range(3):
            step(driver)
        before = expected_wait_s(driver, "low")
        fill(driver, "high", 1, max_tokens=1, prompt_len=1)
        driver.scheduler.plan(driver.now)
        assert expected_wait_s(driver, "low") > before

    def test_what_was_saved_of_it_is_not(self) -> None:
        """12 tokens in three blocks, at 10 tokens a second: each block that finds room on the host takes off 0.4 s."""
        waits_s = []
        for num_host_blocks in range(4):
            limits = {"num_host_blocks": num_host_blocks, "preemption_mode": PreemptionMode.SWAP}
            driver = busy_driver(*("low",) * 5, **limits)
            fill(driver, "low", 1)
            for _ in range(3):
                step(driver)
            fill(driver, "high", 1, max_tokens=1, prompt_len=1)
            driver.scheduler.plan(driver.now)
            waits_s.append(expected_wait_s(driver, "low"))
        assert [waits_s[0] - each for each in waits_s] == pytest.approx([0.0, 0.4, 0.8, 1.2])


def test_expected_output_is_the_class_average_but_never_more_than_max_tokens() -> None:
    """High requests generate 11 tokens on average: 5 that may generate 200 are expected to generate 11, 5 of 1 just 1."""
    for max_tokens, expected_s in [(200, 10.5), (1, 5.5)]:
        driver = busy_driver()
        fill(driver, "high", 5, max_tokens=max_tokens)
        assert expected_wait_s(driver, "high") == pytest.approx(expected_s, rel=0.01)


def test_an_output_that_was_cut_short_is_at_least_as_long_as_it_was() -> None:
    """Until a request ends by itself, those that their clients cancel say how long outputs are; then they only add."""
    driver = busy_driver("low")
    for id, num_steps in [("first", 50), ("short", 5)]:
        driver.scheduler.add(make_request(id, prompt_len=10, max_tokens=300, service_class="high"), driver.now)
        for _ in range(num_steps):
            step(driver)
        driver.scheduler.abort(id)
        fill(driver, "high", 5, max_tokens=300)
        assert expected_wait_s(driver, "high") == pytest.approx(5 * (10 + 50) / 10, rel=0.01)
        for index in range(5):
            driver.scheduler.abort(f"high{index}")


def test_prompt_tokens_that_are_cached_are_not_waited_for() -> None:
    """Half of each prompt is a prefix that all share."""
    driver = busy_driver()
    for index in range(100):
        request = make_request(
            f"shares{index}", prompt_len=16, max_tokens=1, prefix="p", prefix_len=8, service_class="high"
        )
        driver.scheduler.add(request, driver.now)
        while step(driver):
            pass
    fill(driver, "high", 5, prompt_len=16, max_tokens=1)
    assert expected_wait_s(driver, "high") == pytest.approx(5 * (8 + 1) / 10, rel=0.05)


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
