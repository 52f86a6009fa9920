"""The aged lane: its bound holds whatever better classes send, and what it costs them is as small as lane.py says."""

from typing import Any

import pytest

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import FinishReason
from jetway.scheduler.limits import PreemptionMode
from tests.support.scheduling import Driver, ReferenceExecutor, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1)
LOW = ServiceClass(name="low", level=2, max_wait_s=10.0)


def make_driver(*, num_blocks: int = 100, **options: Any) -> Driver:
    scheduler = make_scheduler(num_blocks=num_blocks, **{"classes": [HIGH, LOW], **options})
    return Driver(scheduler, ReferenceExecutor(num_blocks=num_blocks))


def add(driver: Driver, id: str, **fields: Any) -> None:
    """To the class that the id names."""
    name = id.rstrip("0123456789")
    driver.scheduler.add(make_request(id, **{"service_class": name, **fields}), driver.now)


def stream(driver: Driver, steps: int, *, backlog: int = 8, **fields: Any) -> dict[str, int]:
    """A step a second, with `backlog` requests of the high class always waiting; when each request first started."""
    first: dict[str, int] = {}
    for _ in range(steps):
        driver.now += 1.0
        for number in range(backlog - driver.scheduler.stats(driver.now).classes[0].num_queued):
            add(driver, f"high{driver.now:.0f}{number}", **{"max_tokens": 8, **fields})
        plan = driver.step()
        assert plan is not None
        for start in plan.starts:
            first.setdefault(start.sequence_id.request_id, int(driver.now))
    return first


class TestBound:
    def test_probe_c_the_worst_class_starts_within_max_wait_under_a_steady_better_stream(self) -> None:
        driver = make_driver(max_num_seqs=4)
        stream(driver, 5)
        add(driver, "low", max_tokens=4)
        assert stream(driver, 30)["low"] <= 5 + 10

    @pytest.mark.parametrize("aged_slots", [1, 2, 3])
    def test_the_jth_starts_within_max_wait_and_the_service_of_those_before_it(self, aged_slots: int) -> None:
        """6 tokens each: a slot of the lane serves one every 6 steps."""
        driver = make_driver(max_num_seqs=4, aged_slots=aged_slots)
        for index in range(7):
            add(driver, f"low{index}", max_tokens=6)
        first = stream(driver, 120)
        for index in range(7):
            assert first[f"low{index}"] <= 10 + 6 * (index // aged_slots)

    def test_it_holds_where_kv_is_full_of_better_work(self) -> None:
        """A low request takes half of the pool, so that the lane serves one at a time: 20 steps, and 5 of prefill."""
        driver = make_driver(num_blocks=40, max_num_seqs=8, aged_slots=2)
        for index in range(3):
            add(driver, f"low{index}", prompt_len=60, max_tokens=20)
        first = stream(driver, 150, prompt_len=20, max_tokens=20)
        for index in range(3):
            assert first[f"low{index}"] <= 10 + index * (20 + 60 // 4)

    def test_it_holds_with_one_slot(self) -> None:
        driver = make_driver(max_num_seqs=1)
        add(driver, "low")
        assert stream(driver, 12)["low"] == 10

    def test_where_nothing_may_be_displaced_what_becomes_free_is_kept_for_it(self) -> None:
        """Five high requests hold the pool for 16 steps at most; nothing of theirs starts before the low one has room."""
        driver = make_driver(num_blocks=40, max_num_seqs=8, preemption_mode=PreemptionMode.OFF)
        stream(driver, 1, prompt_len=16, max_tokens=16)
        add(driver, "low", prompt_len=100, max_tokens=20)
        assert stream(driver, 60, prompt_len=16, max_tokens=16)["low"] <= 1 + 10 + 16

    def test_a_class_that_runs_as_many_as_it_may_holds_up_no_other(self) -> None:
        x, z = (
            ServiceClass(name=name, level=2, max_wait_s=10.0, max_running=most) for name, most in (("x", 1), ("z", 9))
        )
        driver = make_driver(max_num_seqs=4, aged_slots=2, classes=[HIGH, x, z])
        for id in ("x0", "x1", "z0"):
            add(driver, id, max_tokens=60)
        first = stream(driver, 30)
        assert first["z0"] == first["x0"] == 10
        assert "x1" not in first

    def test_it_runs_no_more_of_a_class_than_may_run(self) -> None:
        low = ServiceClass(name="low", level=2, max_wait_s=10.0, max_running=1)
        driver = make_driver(max_num_seqs=4, classes=[HIGH, low], aged_slots=2)
        for index in range(3):
            add(driver, f"low{index}", max_tokens=30)
        driver.now = 20.0
        driver.step()
        driver.step()
        assert driver.running() == {"low0"}
        assert driver.scheduler.stats(20.0).blocked == {
            0: "its class runs as many as it may",
            2: "its class runs as many as it may",
        }

    def test_it_says_when_it_is_full(self) -> None:
        driver = make_driver(max_num_seqs=4, aged_slots=1)
        for index in range(2):
            add(driver, f"low{index}", max_tokens=30)
        stream(driver, 12)
        assert driver.scheduler.stats(12.0).blocked[0] == "the aged lane is full"


class TestCost:
    def test_while_nothing_is_due_better_classes_have_every_slot(self) -> None:
        driver = make_driver(max_num_seqs=2)
        for index in range(4):
            add(driver, f"low{index}", max_tokens=20)
            add(driver, f"high{index}", max_tokens=20)
        driver.step()
        assert driver.running() == {"high0", "high1"}
        driver.now = 9.0
        driver.step()
        assert driver.running() == {"high0", "high1"}

    def test_it_costs_no_more_than_its_slots(self) -> None:
        """With blocks and budget to spare, the high class is never behind where it is with as many slots fewer."""

        def finished(*, num_low: int, max_num_seqs: int) -> list[int]:
            driver = make_driver(max_num_seqs=max_num_seqs, aged_slots=1)
            for index in range(num_low):
                add(driver, f"low{index}", max_tokens=20)
            counts = []
            for step in range(120):
                if step % 3 == 0:
                    add(driver, f"high{step}", max_tokens=10)
                driver.now += 1.0
                driver.step()
                counts.append(sum(id.startswith("high") for id in driver.finishes()))
            return counts

        with_lane = finished(num_low=12, max_num_seqs=4)
        without_slot = finished(num_low=0, max_num_seqs=3)
        alone = finished(num_low=0, max_num_seqs=4)
        assert with_lane[:18] == alone[:18], "the first low request was due in step 10, and a high one lasts 10 steps"
        assert all(less <= seen <= most for less, seen, most in zip(without_slot, with_lane, alone, strict=True))

    def test_of_blocks_only_the_first_takes_more_than_one_better_sequences_place(self) -> None:
        """Each low request needs the blocks of two high ones: both are due, and the second waits until the first is done."""
        driver = make_driver(num_blocks=32, num_host_blocks=100, max_num_seqs=8, aged_slots=4)
        for index in range(2):
            add(driver, f"low{index}", prompt_len=52, max_tokens=1)
        stream(driver, 9, prompt_len=12, max_tokens=60)
        assert len(driver.running()) == 6
        first = stream(driver, 1, prompt_len=12, max_tokens=60)
        assert first == {"low0": 10}
        assert len(driver.running()) == 6 - 1 - 2 + 1, "one high request yielded to the growth of the others"
        assert driver.scheduler.stats(driver.now).blocked[0] == "the KV blocks are held by equal or better levels"
        first = stream(driver, 3, prompt_len=12, max_tokens=60)
        assert list(driver.finishes()) == ["low0/0", "low1/0"]
        assert first["low1"] == 12, "a block, then the rest of the prompt, then it is done"

    def test_of_the_budget_it_takes_a_block_while_better_classes_use_the_rest(self) -> None:
        """A low prompt of 200 tokens; each step brings a high one of 12, of 16 that the budget holds beside decodes."""
        driver = make_driver(max_num_seqs=8, max_num_batched_tokens=24)
        for step in range(100):
            if step == 0:
                add(driver, "low", prompt_len=200, max_tokens=2)
            driver.now += 1.0
            add(driver, f"high{step}", prompt_len=12, max_tokens=1)
            driver.step()
            assert f"high{step}/0" in driver.finishes()
        assert driver.finishes()["low/0"] == (FinishReason.LENGTH, 2)

    def test_nobody_better_waits_for_a_prefix_that_it_computes(self) -> None:
        """It would get a block a step: the others of the high class use the rest."""
        driver = make_driver(max_num_seqs=8, max_num_batched_tokens=16)
        add(driver, "low", prompt_len=200, prefix="p", prefix_len=196)
        driver.now = 10.0
        driver.step()
        add(driver, "high", prompt_len=40, max_tokens=1, prefix="p", prefix_len=40)
        for step in range(4):
            driver.step()
            add(driver, f"high{step}", prompt_len=12, max_tokens=1)
        assert driver.finishes()["high/0"] == (FinishReason.LENGTH, 1)

    def test_without_slots_there_is_no_lane(self) -> None:
        driver = make_driver(max_num_seqs=2, aged_slots=0)
        add(driver, "low", max_tokens=3)
        assert "low" not in stream(driver, 40)
