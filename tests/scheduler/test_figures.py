"""What the scheduler says of itself: counters, waits, and why the next does not run."""

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import SequenceFinished
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.request import InvalidRequest
from jetway.scheduler.stats import Blocked, Histogram
from tests.support.scheduling import Driver, ReferenceExecutor, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1)
LOW = ServiceClass(name="low", level=2)


def add(driver: Driver, id: str, **fields: Any) -> None:
    driver.scheduler.add(make_request(id, **fields), driver.now)


def test_preemptions_are_counted_by_reason_and_mode_and_recomputed_tokens_with_them() -> None:
    scheduler = make_scheduler(num_blocks=12, classes=[HIGH, LOW], preemption_mode=PreemptionMode.RECOMPUTE)
    driver = Driver(scheduler, ReferenceExecutor(num_blocks=12))
    add(driver, "low", prompt_len=30, max_tokens=10, service_class="low")
    for _ in range(3):
        driver.step()
    add(driver, "high", prompt_len=30, max_tokens=2, service_class="high")
    driver.run()
    counters = scheduler.stats(0.0).counters
    assert dict(counters.preemptions) == {("priority", "recompute"): 1}
    assert counters.num_recomputed_tokens == counters.num_computed_tokens - (30 + 9 + 30 + 1)
    assert counters.num_recomputed_tokens > 0


def test_a_hit_rate_counts_first_starts_only() -> None:
    """vllm issue 48860: re-lookups of preempted requests inflate it. Nothing is shared here: no hit."""
    driver = Driver(make_scheduler(num_blocks=12, num_host_blocks=50), ReferenceExecutor(num_blocks=12))
    for id in "abc":
        add(driver, id, prompt_len=8, max_tokens=24)
    driver.run()
    counters = driver.scheduler.stats(0.0).counters
    assert counters.num_preemptions > 0
    assert (counters.num_prompt_tokens, counters.num_cached_tokens) == (24, 0)


def test_it_says_why_the_next_of_a_level_does_not_run() -> None:
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
    add(driver, "runs", max_tokens=9, service_class="high")
    driver.step()
    add(driver, "high", service_class="high")
    add(driver, "low", service_class="low")
    driver.step()
    taken = "every slot is taken by an equal or better level"
    assert driver.scheduler.stats(0.0).blocked == {1: taken, 2: taken}


def test_classes_show_what_waits_and_tenants_what_they_were_served() -> None:
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
    add(driver, "runs", max_tokens=9, service_class="high", tenant="t")
    driver.step()
    driver.now = 5.0
    add(driver, "waits", prompt_len=7, service_class="low")
    driver.now = 8.0
    stats = driver.scheduler.stats(driver.now)
    high, low = stats.classes
    assert (high.num_running, high.num_queued) == (1, 0)
    assert (low.num_queued, low.num_queued_tokens, low.oldest_wait_s) == (1, 7, 3.0)
    assert (high.num_queued_requests, low.num_queued_requests) == (0, 1)
    assert dict(stats.counters.served_tokens) == {"t": 1}


def test_each_request_that_is_refused_is_counted_by_the_limit_that_it_met() -> None:
    """dynamo issues 8189 and 9755: distinct counters for each knob."""
    narrow = ServiceClass(max_queued_requests=2, max_queued_tokens=20, queue_timeout_s=3.0)
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[narrow]))
    add(driver, "runs", max_tokens=9)
    driver.step()
    for id, fields in [("a", {"n": 2}), ("too many tokens", {"prompt_len": 15}), ("b", {})]:
        with contextlib.suppress(QueueFull):
            add(driver, id, **fields)
    for id, fields in [("too many", {}), ("too long", {"prompt_len": 1000})]:
        with pytest.raises((QueueFull, InvalidRequest)):
            add(driver, id, **fields)
    driver.now = 3.0
    driver.run()
    counters = driver.scheduler.stats(3.0).counters
    assert dict(counters.rejections) == {
        "max_queued_tokens": 1,
        "max_queued_requests": 1,
        "invalid": 1,
        "queue_timeout_s": 2,
    }


def test_waits_for_the_first_start_are_counted_by_class() -> None:
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
    add(driver, "high", max_tokens=3, service_class="high")
    add(driver, "low", max_tokens=3, service_class="low")
    driver.step()
    driver.now = 7.0
    driver.run()
    times = driver.scheduler.stats(7.0).counters.queue_times
    assert totals(times) == {"high": (1, 0.0), "low": (1, 7.0)}
    assert [event.queued_s for event in driver.log if isinstance(event, SequenceFinished)] == [0.0, 7.0]
    low = times["low"]
    assert low.counts[low.bounds.index(10.0)] == 1


def test_prefills_and_decodes_are_timed_by_class_whatever_comes_between() -> None:
    """Low: prefill from 1 to 3 s, its second token at 4 s; displaced until 18 s, when its last comes."""
    driver = Driver(make_scheduler(max_num_seqs=1, max_num_batched_tokens=9, classes=[HIGH, LOW]))
    driver.now = 1.0
    add(driver, "low", prompt_len=20, max_tokens=3, service_class="low")
    for driver.now in (1.0, 2.0, 3.0, 4.0):
        driver.step()
    add(driver, "high", prompt_len=4, max_tokens=1, service_class="high")
    for driver.now in (5.0, 18.0):
        driver.step()
    add(driver, "cancelled", prompt_len=4, max_tokens=9, service_class="high")
    for driver.now in (21.0, 22.0):
        driver.step()
    driver.scheduler.abort("cancelled")
    counters = driver.scheduler.stats(22.0).counters
    assert totals(counters.prefill_times) == {"low": (1, 2.0), "high": (2, 0.0)}
    assert totals(counters.decode_times) == {"low": (1, 15.0), "high": (1, 0.0)}


def totals(times: Mapping[str, Histogram]) -> dict[str, tuple[int, float]]:
    return {name: (sum(each.counts), each.total) for name, each in times.items()}


def test_each_waiting_sequence_counts_once_by_its_reason() -> None:
    narrow = ServiceClass(name="narrow", level=1, max_running=1)
    driver = Driver(make_scheduler(max_num_seqs=2, classes=[narrow, LOW]))
    for id in "abc":
        add(driver, id, max_tokens=9, service_class="narrow")
    add(driver, "low", max_tokens=9, service_class="low")
    driver.step()
    for id in ("low2", "low3"):
        add(driver, id, service_class="low")
    before = {each.name: each.waiting for each in driver.scheduler.stats(0.0).classes}
    driver.step()
    after = {each.name: each.waiting for each in driver.scheduler.stats(0.0).classes}
    assert before == {"narrow": {Blocked.CLASS: 2}, "low": {Blocked.UNPLANNED: 2}}
    assert after == {"narrow": {Blocked.CLASS: 2}, "low": {Blocked.SLOTS: 2}}


def test_a_displaced_sequence_shows_in_its_class_since_it_was_displaced() -> None:
    """vllm issue 5051."""
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
    add(driver, "low", max_tokens=9, service_class="low")
    driver.step()
    driver.now = 5.0
    add(driver, "high", max_tokens=9, service_class="high")
    driver.step()
    stats = driver.scheduler.stats(12.0)
    low = stats.classes[1]
    assert (low.num_running, low.num_queued, low.num_displaced, low.oldest_wait_s) == (0, 0, 1, 7.0)
    assert stats.blocked == {2: "every slot is taken by an equal or better level"}


def test_what_waits_for_a_prefix_shows_as_waiting_until_it_starts() -> None:
    driver = Driver(make_scheduler(num_blocks=60, max_num_batched_tokens=12))
    for id in ("computes", "waits"):
        add(driver, id, prompt_len=40, prefix="p", prefix_len=36)
    for now in (1.0, 2.0):
        driver.now = now
        driver.step()
        stats = driver.scheduler.stats(now)
        assert stats.blocked == {2: "another sequence is computing its prefix"}
        assert (stats.classes[0].num_queued, stats.classes[0].oldest_wait_s) == (1, now)
        assert stats.classes[0].waiting == {Blocked.PREFIX: 1}
