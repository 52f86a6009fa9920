"""The plans of a pipeline: what is in flight is in no other plan, and each plan decodes an even share."""

from collections import deque
from typing import Any

import pytest

from jetway.scheduler.plan import Slot, StepPlan
from jetway.scheduler.scheduler import Scheduler
from tests.support.scheduling import Driver, expected_tokens, make_request, make_scheduler


def decodes(plan: StepPlan) -> set[Slot]:
    return {slot for slot, count in zip(plan.row_slots, plan.row_tokens, strict=True) if count == 1}


def pipelined(num_micro_batches: int, depth: int, **limits: Any) -> Driver:
    return Driver(make_scheduler(num_micro_batches=num_micro_batches, max_num_seqs=16, **limits), depth=depth)


@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize(("num_seqs", "sizes"), [(8, {2}), (10, {3, 1}), (3, {1}), (1, {1})])
def test_what_decodes_is_spread_evenly_over_what_is_in_flight(num_seqs: int, sizes: set[int], depth: int) -> None:
    driver = pipelined(4, depth)
    requests = [make_request(str(number), max_tokens=40) for number in range(num_seqs)]
    for request in requests:
        driver.scheduler.add(request, 0.0)
    driver.run()
    assert [driver.tokens(request.id) for request in requests] == [expected_tokens(request) for request in requests]
    settled = driver.plans[8:32]
    assert {len(plan.row_slots) for plan in settled} == sizes
    in_flight: deque[set[Slot]] = deque(maxlen=3)
    for plan in settled:
        slots = decodes(plan)
        if num_seqs >= 4:
            assert all(slots.isdisjoint(others) for others in in_flight)
        in_flight.append(slots)


def test_nobody_is_passed_over() -> None:
    """Ten sequences of one level in four micro-batches of three: none is more than a token behind another."""
    driver = pipelined(4, 4)
    for number in range(10):
        driver.scheduler.add(make_request(str(number), max_tokens=60), 0.0)
    for _ in range(150):
        driver.step()
        lengths = [len(driver.tokens(str(number))) for number in range(10)]
        assert max(lengths) - min(lengths) <= 2, lengths


def test_chunks_of_a_prompt_follow_each_other_without_waiting() -> None:
    """A chunk needs no token of the one before, only its KV, which each stage has by then: every stage has one."""
    scheduler = pipelined(4, 4).scheduler
    scheduler.add(make_request("long", prompt_len=58, max_tokens=2), 0.0)
    plans = [scheduler.plan(0.0) for _ in range(5)]
    assert [plan.row_tokens for plan in plans if plan] == [[16], [16], [16], [10]]
    assert plans[4] is None  # its next token is in flight


def test_one_device_may_be_given_a_token_that_only_it_knows() -> None:
    scheduler: Scheduler = make_scheduler()
    scheduler.add(make_request("a"), 0.0)
    assert scheduler.plan(0.0) and scheduler.plan(0.0)
    assert scheduler.plan(0.0) is None  # one at most
