"""Levels, displacement and deadlines: the behaviour probes of contracts/field.md section 4.4 and more."""

import random
from typing import Any

import pytest

from jetway.scheduler.classes import DEFAULT_CLASSES, ServiceClass
from jetway.scheduler.limits import PreemptionMode
from tests.support.scheduling import Driver, ReferenceExecutor, expected_tokens, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1)
LOW = ServiceClass(name="low", level=2)


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
        assert "high" in driver.running()
        assert len(driver.running()) == 4
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
        assert "high" in driver.running()
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
        assert driver.starts() == ["high", "low", "too big now", "low"]

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
        assert driver.running() == {"low", "big", "middle", "high"}

    def test_one_large_victim_spares_the_small_ones_before_it(self) -> None:
        """The least computed would go first, but the one that is large enough is needed anyway."""
        driver = Driver(make_scheduler(num_blocks=16, classes=[HIGH, LOW]), ReferenceExecutor(num_blocks=16))
        for id, length in [("small0", 4), ("small1", 4), ("large", 40)]:
            add(driver, id, prompt_len=length, max_tokens=8, service_class="low")
        driver.step()
        add(driver, "high", prompt_len=36, max_tokens=2, service_class="high")
        driver.step()
        assert driver.running() == {"small0", "small1", "high"}

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
        assert driver.starts()[:5] == ["low0", "low1", "low2", "low3", "high"]

    def test_a_displaced_sequence_resumes_before_its_level_starts_anything(self) -> None:
        """vllm issue 41951."""
        driver = Driver(make_scheduler(max_num_seqs=2, classes=[HIGH, LOW]))
        for id in "ab":
            add(driver, id, max_tokens=9, service_class="low")
        driver.step()
        add(driver, "waits", max_tokens=1, service_class="low", priority=-5)
        add(driver, "high", max_tokens=1, service_class="high")
        driver.run()
        assert driver.starts() == ["a", "b", "high", "b", "waits"]

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
        assert driver.running() == {"high0", "high1", "high2"}
        driver.now = 3.0
        add(driver, "y2", max_tokens=30, service_class="y")
        for _ in range(8):
            driver.step()
        assert driver.starts()[5:] == ["x2", "high2", "y1", "y2"]
        assert driver.running() == {"x2", "y1", "y2"}
        assert driver.scheduler.stats(3.0).blocked == {2: "its class runs as many as it may"}

    def test_mode_off_displaces_nobody(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, LOW], preemption_mode=PreemptionMode.OFF))
        add(driver, "low", max_tokens=9, service_class="low")
        driver.step()
        add(driver, "high", max_tokens=2, service_class="high")
        driver.run()
        assert driver.starts() == ["low", "high"]


class TestSharing:
    def served(self, driver: Driver, steps: int) -> dict[str, int]:
        for _ in range(steps):
            driver.step()
        counts: dict[str, int] = {}
        for id in driver.starts():
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
        assert driver.starts() == ["a0", "a1", "a2", "a3", "b"]

    def test_a_priority_orders_only_the_tenants_own(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=1))
        for id, priority in [("a0", 0), ("a1", 5), ("a2", -5)]:
            add(driver, id, tenant="a", max_tokens=1, priority=priority)
        add(driver, "b0", tenant="b", max_tokens=1, priority=9)
        driver.run()
        assert driver.starts() == ["a2", "b0", "a0", "a1"]

    def test_a_class_runs_no_more_than_its_limit(self) -> None:
        classes = [ServiceClass(name="x", max_running=2), ServiceClass(name="y")]
        driver = Driver(make_scheduler(classes=classes))
        for index in range(6):
            add(driver, f"x{index}", service_class="x", max_tokens=5)
        add(driver, "y0", service_class="y", max_tokens=5)
        driver.step()
        assert driver.running() == {"x0", "x1", "y0"}
        driver.run()
        assert len(driver.finishes()) == 7


def test_of_the_default_classes_interactive_goes_before_standard_and_standard_before_batch() -> None:
    driver = Driver(make_scheduler(max_num_seqs=3, classes=DEFAULT_CLASSES))
    for name in ("batch", "standard", "interactive"):
        for index in range(3):
            add(driver, f"{name}{index}", service_class=name, max_tokens=2)
    driver.step()
    assert driver.running() == {"interactive0", "interactive1", "interactive2"}
    driver.run()
    assert [id[:-3] for id in driver.finishes()] == ["interactive"] * 3 + ["standard"] * 3 + ["batch"] * 3
