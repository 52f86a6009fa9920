"""Users' reports about other schedulers (contracts/field.md section 5), each by the behaviour that they expected."""

from typing import Any

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import FinishReason
from jetway.scheduler.limits import PreemptionMode
from tests.support.scheduling import Driver, ReferenceExecutor, expected_tokens, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1)
LOW = ServiceClass(name="low", level=2)


def add(driver: Driver, id: str, **fields: Any) -> None:
    driver.scheduler.add(make_request(id, **fields), driver.now)


def test_a_high_request_among_thirty_low_ones_gets_a_token_in_every_step() -> None:
    """vllm issues 24365 and 11361: priority had no visible effect."""
    driver = Driver(make_scheduler(num_blocks=60, num_host_blocks=200, classes=[HIGH, LOW]), ReferenceExecutor(60))
    for index in range(30):
        add(driver, f"low{index}", prompt_len=20, max_tokens=40, service_class="low")
    for _ in range(10):
        driver.step()
    add(driver, "high", prompt_len=20, max_tokens=40, service_class="high")
    for num_tokens in range(1, 41):
        driver.step()
        assert len(driver.tokens("high")) == num_tokens


@pytest.mark.parametrize("num_host_blocks", [0, 1])
def test_a_host_pool_without_room_for_two_victims_is_no_error(num_host_blocks: int) -> None:
    """vllm issues 546, 787 and 15996: the engine stopped once its swap space was used up."""
    scheduler = make_scheduler(
        num_blocks=14,
        num_host_blocks=num_host_blocks,
        classes=[HIGH, LOW],
        preemption_mode=PreemptionMode.SWAP,
    )
    driver = Driver(scheduler, ReferenceExecutor(14))
    for id in ("low0", "low1"):
        add(driver, id, prompt_len=20, max_tokens=6, service_class="low")
    driver.step()
    add(driver, "high", prompt_len=44, max_tokens=6, service_class="high")
    driver.run()
    counters = scheduler.stats(0.0).counters
    modes = {("priority", "swap"): num_host_blocks, ("priority", "recompute"): 2 - num_host_blocks}
    assert dict(counters.preemptions) == {mode: count for mode, count in modes.items() if count}
    for id, prompt_len in (("low0", 20), ("low1", 20), ("high", 44)):
        assert driver.tokens(id) == expected_tokens(make_request(id, prompt_len=prompt_len, max_tokens=6))
    assert scheduler.stats(0.0).num_free_host_blocks == num_host_blocks


def test_after_three_hundred_dropped_streams_a_request_completes() -> None:
    """lmdeploy issue 1788: what clients dropped leaked, and the engine stalled."""
    driver = Driver(make_scheduler(num_blocks=40, num_host_blocks=40, max_num_seqs=4), ReferenceExecutor(40), depth=1)
    for index in range(300):
        add(driver, f"dropped{index}", prompt_len=10, max_tokens=60, n=1 + index % 3)
        while not driver.tokens(f"dropped{index}"):
            driver.step()
        driver.scheduler.abort(f"dropped{index}")
    add(driver, "stays", prompt_len=10, max_tokens=60)
    driver.run()
    assert driver.finishes()["stays/0"] == (FinishReason.LENGTH, 60)
    stats = driver.scheduler.stats(0.0)
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert (stats.num_free_device_blocks, stats.num_free_host_blocks) == (40, 40)


def test_with_room_for_one_of_two_submitted_at_once_exactly_one_is_refused() -> None:
    """vllm issue 58192: the limit was checked early and counted late, so a burst slipped through."""
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[ServiceClass(max_queued_requests=1)]))
    add(driver, "runs", max_tokens=9)
    driver.step()
    add(driver, "first", n=8)
    with pytest.raises(QueueFull, match="class standard may queue 1 requests; this request makes it 2") as full:
        add(driver, "second")
    assert full.value.retry_after_s is not None
    driver.run()
    assert {id.split("/")[0] for id in driver.finishes()} == {"runs", "first"}


def test_blocks_that_are_held_are_counted_once_however_many_share_them() -> None:
    """vllm issue 20302: the usage gauge was wrong."""
    driver = Driver(make_scheduler(num_blocks=40), ReferenceExecutor(40))
    add(driver, "first", prompt_len=18, max_tokens=20, prefix="p", prefix_len=16)
    driver.step()
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 40 - 5
    add(driver, "shares", prompt_len=18, max_tokens=20, prefix="p", prefix_len=16)
    driver.step()
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 40 - 5 - 1
    driver.scheduler.abort("first")
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 40 - 5
    driver.scheduler.abort("shares")
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 40
