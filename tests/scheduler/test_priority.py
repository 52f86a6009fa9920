"""Levels, displacement and deadlines: the behaviour probes of contracts/field.md section 4.4 and more."""

import contextlib
import random
from typing import Any

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import DEFAULT_CLASSES, ServiceClass, TimeoutAction
from jetway.scheduler.events import FinishReason
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.request import InvalidRequest
from tests.support.scheduling import Driver, ReferenceExecutor, expected_tokens, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1)
LOW = ServiceClass(name="low", level=2)


def starts(driver: Driver) -> list[str]:
    """Who started, in order, restarts included."""
    return [start.sequence_id.request_id for plan in driver.plans for start in plan.starts]


def running(driver: Driver) -> set[str]:
    return {resident.sequence_id.request_id for resident in driver.executor.residents.values()}


def add(driver: Driver, id: str, **fields: Any) -> None:
    driver.scheduler.add(make_request(id, **fields), driver.now)


class TestDisplacement:
    """vLLM 0.32 on the same probes: A 500 steps, B 180 steps, C never, D 19 to 28 % recomputed."""

    def test_probe_a_a_better_class_takes_a_slot_in_the_first_plan_after_it_arrived(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=4, classes=[HIGH, LOW]))
        for index in range(4):
            add(driver, f"low{index}", max_tokens=90, service_class="low")
        for _ in range(5):
            driver.step()
        add(driver, "high", max_tokens=4, service_class="high")
        driver.step()
        assert "high" in running(driver)
        assert len(running(driver)) == 4
        driver.run()
        assert driver.tokens("high") == expected_tokens(make_request("high", max_tokens=4))
        assert len(driver.finishes()) == 5

    def test_probe_b_a_better_class_takes_blocks_in_the_first_plan_after_it_arrived(self) -> None:
        scheduler = make_scheduler(num_blocks=40, num_host_blocks=100, classes=[HIGH, LOW])
        driver = Driver(scheduler, ReferenceExecutor(num_blocks=40))
        for index in range(4):
            add(driver, f"low{index}", prompt_len=35, max_tokens=60, service_class="low")
        while driver.scheduler.stats(0.0).num_free_device_blocks > 4:
            driver.step()
        add(driver, "high", prompt_len=50, max_tokens=4, service_class="high")
        driver.step()
        assert "high" in running(driver)
        driver.run()
        for index in range(4):
            assert driver.tokens(f"low{index}") == expected_tokens(
                make_request(f"low{index}", prompt_len=35, max_tokens=60)
            )

    @pytest.mark.parametrize("fraction", [0.25, 0.4])
    def test_probe_d_with_swap_nothing_is_computed_twice(self, fraction: float) -> None:
        rng = random.Random(1)
        sizes = [(rng.randint(16, 96), rng.randint(16, 96)) for _ in range(40)]
        num_blocks = int(sum((prompt + output) // 4 + 1 for prompt, output in sizes) * fraction)
        scheduler = make_scheduler(
            num_blocks=num_blocks,
            num_host_blocks=2000,
            max_num_seqs=40,
            max_num_batched_tokens=512,
            preemption_mode=PreemptionMode.SWAP,
        )
        driver = Driver(scheduler, ReferenceExecutor(num_blocks=num_blocks))
        for index, (prompt, output) in enumerate(sizes):
            add(driver, str(index), prompt_len=prompt, max_tokens=output)
        driver.run()
        assert scheduler.stats(0.0).counters.num_preemptions > 0
        assert scheduler.stats(0.0).counters.num_computed_tokens == sum(prompt + output - 1 for prompt, output in sizes)

    def test_equals_never_displace_each_other(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
        add(driver, "first", max_tokens=9, service_class="low")
        driver.step()
        add(driver, "second", max_tokens=9, service_class="low")
        driver.run()
        assert driver.scheduler.stats(0.0).counters.num_preemptions == 0

    def test_nobody_is_displaced_for_what_would_not_fit_all_the_same(self) -> None:
        """The newcomer needs more than the worse level holds: nothing moves until it can start."""
        scheduler = make_scheduler(num_blocks=20, classes=[HIGH, LOW])
        driver = Driver(scheduler, ReferenceExecutor(num_blocks=20))
        add(driver, "high", prompt_len=40, max_tokens=8, service_class="high")
        add(driver, "low", prompt_len=20, max_tokens=12, service_class="low")
        driver.step()
        add(driver, "too big now", prompt_len=60, max_tokens=1, service_class="high")
        driver.step()
        assert scheduler.stats(0.0).counters.num_preemptions == 0
        driver.run()
        assert starts(driver) == ["high", "low", "too big now", "low"]

    def test_the_least_computed_of_the_worst_level_yields(self) -> None:
        classes = [HIGH, LOW, ServiceClass(name="lowest", level=3)]
        driver = Driver(make_scheduler(max_num_seqs=4, classes=classes))
        add(driver, "low", prompt_len=4, max_tokens=50, service_class="low")
        add(driver, "big", prompt_len=20, max_tokens=50, service_class="lowest")
        add(driver, "small", prompt_len=6, max_tokens=50, service_class="lowest")
        add(driver, "middle", prompt_len=10, max_tokens=50, service_class="lowest")
        driver.step()
        add(driver, "high", max_tokens=2, service_class="high")
        driver.step()
        assert running(driver) == {"low", "big", "middle", "high"}

    def test_one_large_victim_spares_the_small_ones_before_it(self) -> None:
        """The least computed would go first, but the one that is large enough is needed anyway."""
        driver = Driver(make_scheduler(num_blocks=16, classes=[HIGH, LOW]), ReferenceExecutor(num_blocks=16))
        for id, length in [("small0", 4), ("small1", 4), ("large", 40)]:
            add(driver, id, prompt_len=length, max_tokens=8, service_class="low")
        driver.step()
        add(driver, "high", prompt_len=36, max_tokens=2, service_class="high")
        driver.step()
        assert running(driver) == {"small0", "small1", "high"}

    def test_with_mode_off_a_better_level_is_not_starved_of_blocks(self) -> None:
        """Nothing is displaced, but worse levels do not take what becomes free while it waits."""
        scheduler = make_scheduler(num_blocks=20, classes=[HIGH, LOW], preemption_mode=PreemptionMode.OFF)
        driver = Driver(scheduler, ReferenceExecutor(num_blocks=20))
        for index in range(4):
            add(driver, f"low{index}", prompt_len=4, max_tokens=8 + 4 * index, service_class="low")
        driver.step()
        add(driver, "high", prompt_len=56, max_tokens=4, service_class="high")
        for index in range(4, 9):
            add(driver, f"low{index}", prompt_len=4, max_tokens=8, service_class="low")
        driver.run()
        assert starts(driver)[:5] == ["low0", "low1", "low2", "low3", "high"]

    def test_a_displaced_sequence_resumes_before_its_level_starts_anything(self) -> None:
        """vllm issue 41951."""
        driver = Driver(make_scheduler(max_num_seqs=2, classes=[HIGH, LOW]))
        for id in "ab":
            add(driver, id, max_tokens=9, service_class="low")
        driver.step()
        add(driver, "waits", max_tokens=1, service_class="low", priority=-5)
        add(driver, "high", max_tokens=1, service_class="high")
        driver.run()
        assert starts(driver) == ["a", "b", "high", "b", "waits"]

    def test_a_displaced_sequence_of_a_full_class_holds_up_no_other_that_was_displaced(self) -> None:
        """x1 and y1 are displaced; x2 fills its class through the aged lane. y1 resumes before new ones of its class."""
        x = ServiceClass(name="x", level=2, max_running=1, max_wait_s=3.0)
        driver = Driver(make_scheduler(max_num_seqs=3, classes=[HIGH, x, ServiceClass(name="y", level=2)]))
        add(driver, "x2", max_tokens=60, service_class="x", priority=1)
        driver.now = 2.0
        add(driver, "x1", max_tokens=60, service_class="x")
        add(driver, "y1", max_tokens=30, service_class="y")
        driver.step()
        for index in range(3):
            add(driver, f"high{index}", max_tokens=4, service_class="high")
        driver.step()
        assert running(driver) == {"high0", "high1", "high2"}
        driver.now = 3.0
        add(driver, "y2", max_tokens=30, service_class="y")
        for _ in range(8):
            driver.step()
        assert starts(driver)[5:] == ["x2", "high2", "y1", "y2"]
        assert running(driver) == {"x2", "y1", "y2"}
        assert driver.scheduler.stats(3.0).blocked == {2: "its class runs as many as it may"}

    def test_mode_off_displaces_nobody(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW], preemption_mode=PreemptionMode.OFF))
        add(driver, "low", max_tokens=9, service_class="low")
        driver.step()
        add(driver, "high", max_tokens=2, service_class="high")
        driver.run()
        assert starts(driver) == ["low", "high"]


class TestDeadlines:
    def test_a_deadline_ends_whatever_state_the_request_is_in(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1))
        add(driver, "runs", max_tokens=90, deadline_s=5.0)
        add(driver, "waits", max_tokens=90, deadline_s=4.0)
        add(driver, "stays", max_tokens=3)
        driver.step()
        assert driver.scheduler.wake_at() == 4.0
        driver.now = 4.5
        driver.step()
        assert driver.finishes() == {"waits/0": (FinishReason.EXPIRED, 0)}
        driver.now = 5.0
        driver.run()
        assert driver.finishes()["runs/0"][0] is FinishReason.EXPIRED
        assert driver.finishes()["stays/0"] == (FinishReason.LENGTH, 3)
        assert driver.scheduler.stats(0.0).num_free_device_blocks == 100

    def test_a_queue_timeout_rejects_what_never_started(self) -> None:
        """It does not count while a sequence runs, nor after it was preempted."""
        low = ServiceClass(name="low", level=2, queue_timeout_s=3.0)
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, low]))
        add(driver, "started", max_tokens=9, service_class="low")
        add(driver, "never", max_tokens=9, service_class="low")
        driver.step()
        add(driver, "high", max_tokens=9, service_class="high")
        driver.step()
        driver.now = 3.0
        driver.run()
        assert driver.finishes() == {
            "never/0": (FinishReason.EXPIRED, 0),
            "high/0": (FinishReason.LENGTH, 9),
            "started/0": (FinishReason.LENGTH, 9),
        }

    def test_a_request_may_shorten_the_queue_timeout_of_its_class_but_not_lengthen_it(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[ServiceClass(queue_timeout_s=3.0)]))
        add(driver, "runs", max_tokens=9)
        add(driver, "hasty", queue_timeout_s=2.0)
        add(driver, "patient", queue_timeout_s=4.0)
        driver.step()
        assert driver.scheduler.wake_at() == 2.0
        driver.now = 2.0
        driver.step()
        assert driver.finishes() == {"hasty/0": (FinishReason.EXPIRED, 0)}
        driver.now = 3.0
        driver.step()
        assert driver.finishes()["patient/0"] == (FinishReason.EXPIRED, 0)

    def test_a_queue_timeout_is_of_the_request_and_not_of_each_of_its_n(self) -> None:
        """Once one sequence has started the request does not wait any more; before, all of it is rejected at once."""
        driver = Driver(make_scheduler(max_num_seqs=2, classes=[ServiceClass(queue_timeout_s=3.0)]))
        add(driver, "started", n=5, max_tokens=6)
        driver.step()
        add(driver, "waits", n=2, max_tokens=6)
        driver.now = 3.0
        driver.run()
        assert driver.finishes() == {
            **{f"started/{index}": (FinishReason.LENGTH, 6) for index in range(5)},
            **{f"waits/{index}": (FinishReason.EXPIRED, 0) for index in range(2)},
        }

    def test_one_that_has_ended_had_started(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[ServiceClass(queue_timeout_s=3.0)]))
        add(driver, "a", n=3, max_tokens=1)
        driver.step()
        driver.now = 3.0
        driver.run()
        assert set(driver.finishes().values()) == {(FinishReason.LENGTH, 1)}

    def test_a_queue_timeout_may_send_it_to_the_end_instead(self) -> None:
        delayed = ServiceClass(queue_timeout_s=3.0, queue_timeout_action=TimeoutAction.DELAY)
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[delayed]))
        add(driver, "runs", max_tokens=2)
        add(driver, "old", max_tokens=1)
        driver.step()
        driver.now = 2.5
        add(driver, "young", max_tokens=1)
        driver.now = 3.5
        driver.run()
        assert starts(driver) == ["runs", "young", "old"]


class TestSharing:
    def served(self, driver: Driver, steps: int) -> dict[str, int]:
        for _ in range(steps):
            driver.step()
        counts: dict[str, int] = {}
        for id in starts(driver):
            counts[id[0]] = counts.get(id[0], 0) + 1
        return counts

    def test_tenants_of_a_class_share_it_however_much_one_sends(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=2))
        for index in range(60):
            add(driver, f"a{index}", tenant="a")
        for index in range(20):
            add(driver, f"b{index}", tenant="b")
        counts = self.served(driver, 80)
        assert abs(counts["a"] - counts["b"]) <= 1

    def test_classes_of_one_level_share_it_by_weight(self) -> None:
        classes = [ServiceClass(name="x", weight=3.0), ServiceClass(name="y")]
        driver = Driver(make_scheduler(max_num_seqs=2, classes=classes))
        for index in range(60):
            add(driver, f"x{index}", service_class="x")
            add(driver, f"y{index}", service_class="y")
        counts = self.served(driver, 80)
        assert counts["x"] == pytest.approx(3 * counts["y"], abs=3)

    def test_a_class_that_does_not_share_serves_in_order_of_arrival(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[ServiceClass(share_fairly=False)]))
        for index in range(4):
            add(driver, f"a{index}", tenant="a", max_tokens=1)
        add(driver, "b", tenant="b", max_tokens=1)
        driver.run()
        assert starts(driver) == ["a0", "a1", "a2", "a3", "b"]

    def test_a_priority_orders_only_the_tenants_own(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1))
        for id, priority in [("a0", 0), ("a1", 5), ("a2", -5)]:
            add(driver, id, tenant="a", max_tokens=1, priority=priority)
        add(driver, "b0", tenant="b", max_tokens=1, priority=9)
        driver.run()
        assert starts(driver) == ["a2", "b0", "a0", "a1"]

    def test_a_class_runs_no_more_than_its_limit(self) -> None:
        classes = [ServiceClass(name="x", max_running=2), ServiceClass(name="y")]
        driver = Driver(make_scheduler(classes=classes))
        for index in range(6):
            add(driver, f"x{index}", service_class="x", max_tokens=5)
        add(driver, "y0", service_class="y", max_tokens=5)
        driver.step()
        assert running(driver) == {"x0", "x1", "y0"}
        driver.run()
        assert len(driver.finishes()) == 7


def test_of_the_default_classes_interactive_goes_before_standard_and_standard_before_batch() -> None:
    driver = Driver(make_scheduler(max_num_seqs=3, classes=DEFAULT_CLASSES))
    for name in ("batch", "standard", "interactive"):
        for index in range(3):
            add(driver, f"{name}{index}", service_class=name, max_tokens=2)
    driver.step()
    assert running(driver) == {"interactive0", "interactive1", "interactive2"}
    driver.run()
    assert [id[:-3] for id in driver.finishes()] == ["interactive"] * 3 + ["standard"] * 3 + ["batch"] * 3


class TestFigures:
    def test_preemptions_are_counted_by_reason_and_mode_and_recomputed_tokens_with_them(self) -> None:
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

    def test_a_hit_rate_counts_first_starts_only(self) -> None:
        """vllm issue 48860: re-lookups of preempted requests inflate it. Nothing is shared here: no hit."""
        driver = Driver(make_scheduler(num_blocks=12, num_host_blocks=50), ReferenceExecutor(num_blocks=12))
        for id in "abc":
            add(driver, id, prompt_len=8, max_tokens=24)
        driver.run()
        counters = driver.scheduler.stats(0.0).counters
        assert counters.num_preemptions > 0
        assert (counters.num_prompt_tokens, counters.num_cached_tokens) == (24, 0)

    def test_it_says_why_the_next_of_a_level_does_not_run(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
        add(driver, "runs", max_tokens=9, service_class="high")
        driver.step()
        add(driver, "high", service_class="high")
        add(driver, "low", service_class="low")
        driver.step()
        taken = "every slot is taken by an equal or better level"
        assert driver.scheduler.stats(0.0).blocked == {1: taken, 2: taken}

    def test_classes_show_what_waits_and_tenants_what_they_were_served(self) -> None:
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

    def test_each_request_that_is_refused_is_counted_by_the_limit_that_it_met(self) -> None:
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

    def test_waits_for_the_first_start_are_counted_by_class(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW]))
        add(driver, "high", max_tokens=3, service_class="high")
        add(driver, "low", max_tokens=3, service_class="low")
        driver.step()
        driver.now = 7.0
        driver.run()
        times = driver.scheduler.stats(7.0).counters.queue_times
        assert {name: (sum(each.counts), each.total) for name, each in times.items()} == {
            "high": (1, 0.0),
            "low": (1, 7.0),
        }
        low = times["low"]
        assert low.counts[low.bounds.index(10.0)] == 1

    def test_a_displaced_sequence_shows_in_its_class_since_it_was_displaced(self) -> None:
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

    def test_what_waits_for_a_prefix_shows_as_waiting_until_it_starts(self) -> None:
        driver = Driver(make_scheduler(num_blocks=60, max_num_batched_tokens=12))
        for id in ("computes", "waits"):
            add(driver, id, prompt_len=40, prefix="p", prefix_len=36)
        for now in (1.0, 2.0):
            driver.now = now
            driver.step()
            stats = driver.scheduler.stats(now)
            assert stats.blocked == {2: "another sequence is computing its prefix"}
            assert (stats.classes[0].num_queued, stats.classes[0].oldest_wait_s) == (1, now)
