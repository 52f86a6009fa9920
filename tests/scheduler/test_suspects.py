"""A sequence that kills the executor is found and fails alone; accidents cost nobody anything (DESIGN section 5, "Loss")."""

from dataclasses import dataclass

import pytest

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import FinishReason
from jetway.scheduler.plan import StepPlan, StepResult
from tests.support.scheduling import (
    Driver,
    ReferenceExecutor,
    expected_tokens,
    make_engine,
    make_request,
    make_scheduler,
)


class Died(Exception):
    pass


@dataclass
class Mortal(ReferenceExecutor):
    """Dies of computing token `deadly_at` of a request whose name begins with "poison"."""

    deadly_at: int = 0

    def run(self, plan: StepPlan) -> StepResult:
        result = super().run(plan)
        for slot in plan.row_slots:
            resident = self.residents[slot]
            if resident.sequence_id.request_id.startswith("poison") and resident.computed > self.deadly_at:
                raise Died
        return result


def run(driver: Driver, *, deadly_at: int) -> int:
    """To the end, with a new executor for each that died. How many did."""
    driver.executor = Mortal(deadly_at=deadly_at)
    num_deaths = 0
    while True:
        try:
            driver.run()
            return num_deaths
        except Died:
            num_deaths += 1
            driver.lose_executor(Mortal(deadly_at=deadly_at))
            driver.scheduler.executor_ready(make_engine(), 0.0)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("deadly_at", [0, 9, 10, 13, 40])
def test_the_one_that_kills_fails_by_name_and_alone(depth: int, deadly_at: int) -> None:
    """In its first chunk, at the end of its prompt, while it decodes; or past its end, where it harms nobody."""
    driver = Driver(make_scheduler(max_num_batched_tokens=16), depth=depth)
    innocent = [make_request(id, prompt_len=10, max_tokens=9) for id in "abc"]
    for request in [innocent[0], make_request("poison", prompt_len=10, max_tokens=9), *innocent[1:]]:
        driver.scheduler.add(request, 0.0)
    num_deaths = run(driver, deadly_at=deadly_at)
    assert [driver.tokens(request.id) for request in innocent] == [expected_tokens(request) for request in innocent]
    finishes = driver.finishes()
    poison = finishes.pop("poison/0")
    assert finishes == {f"{request.id}/0": (FinishReason.LENGTH, 9) for request in innocent}
    if deadly_at == 40:
        assert (num_deaths, poison) == (0, (FinishReason.LENGTH, 9))
    else:
        assert (num_deaths, poison[0]) == (3, FinishReason.FAILED)
    assert driver.scheduler.stats(0.0).counters.num_losses == num_deaths


@pytest.mark.parametrize("depth", [0, 1])
def test_accidents_blame_nobody(depth: int) -> None:
    """Whoever was there both times runs alone first; then all go on together."""
    driver = Driver(make_scheduler(max_num_batched_tokens=40), depth=depth)
    requests = [make_request(id, prompt_len=10, max_tokens=4) for id in "abc"]
    for request in requests:
        driver.scheduler.add(request, 0.0)
    for _ in range(2):
        driver.scheduler.plan(0.0)
        driver.lose_executor(ReferenceExecutor())
        driver.scheduler.executor_ready(make_engine(), 0.0)
    driver.run()
    assert [len(plan.row_slots) for plan in driver.plans if plan.row_slots] == [1, 1, 1, 3, 3, 3]
    assert [driver.tokens(request.id) for request in requests] == [expected_tokens(request) for request in requests]


def test_one_request_alone_survives_two_losses() -> None:
    driver = Driver(make_scheduler())
    driver.scheduler.add(make_request("a"), 0.0)
    for _ in range(2):
        driver.scheduler.plan(0.0)
        driver.lose_executor(ReferenceExecutor())
        driver.scheduler.executor_ready(make_engine(), 0.0)
    driver.run()
    assert driver.finishes() == {"a/0": (FinishReason.LENGTH, 4)}


def test_a_suspect_that_cannot_start_waits_for_those_that_run() -> None:
    """The first to be cleared holds the blocks that the other needs: it goes on until it has ended."""
    driver = Driver(make_scheduler(num_blocks=6), ReferenceExecutor(num_blocks=6))
    requests = [make_request("a", prompt_len=4, max_tokens=12), make_request("b", prompt_len=16, max_tokens=4)]
    for request in requests:
        driver.scheduler.add(request, 0.0)
    for _ in range(2):
        driver.scheduler.plan(0.0)
        driver.lose_executor(ReferenceExecutor(num_blocks=6))
        driver.scheduler.executor_ready(make_engine(num_blocks=6), 0.0)
    driver.run()
    assert [driver.tokens(request.id) for request in requests] == [expected_tokens(request) for request in requests]


def test_a_plan_that_never_reached_the_executor_blames_nobody() -> None:
    driver = Driver(make_scheduler())
    driver.scheduler.add(make_request("a"), 0.0)
    for _ in range(5):
        driver.scheduler.plan(0.0)
        driver.scheduler.executor_lost(0.0, num_sent=0)
        driver.scheduler.executor_ready(make_engine(), 0.0)
    driver.run()
    assert driver.finishes() == {"a/0": (FinishReason.LENGTH, 4)}


def test_two_that_kill_are_both_found() -> None:
    """Each alone, and nobody else with them; a class that runs one at a time makes no difference."""
    driver = Driver(make_scheduler(max_num_batched_tokens=40, classes=[ServiceClass(max_running=2)]))
    for id in ("a", "poison", "b", "poison too", "c"):
        driver.scheduler.add(make_request(id, prompt_len=10), 0.0)
    run(driver, deadly_at=9)
    reasons = {name: reason for name, (reason, _) in driver.finishes().items()}
    failed = {"poison/0", "poison too/0"}
    assert reasons == {
        f"{id}/0": FinishReason.FAILED if f"{id}/0" in failed else FinishReason.LENGTH
        for id in ("a", "poison", "b", "poison too", "c")
    }
