"""A scheduler whose steps come, or do not, on a clock that stands until it is moved."""

import logging

import pytest

from jetway.runtime.watchdog import Watchdog
from jetway.scheduler.stats import LastStep
from tests.support.scheduling import Driver, ReferenceExecutor, make_request, make_scheduler

LIMIT_S = 30.0


class Stage:
    """A scheduler with an executor, and its watchdog."""

    def __init__(self) -> None:
        self.driver = Driver(make_scheduler())
        self.watchdog = Watchdog(self.driver.scheduler, lambda: self.driver.now)

    def add(self, max_tokens: int = 8) -> None:
        self.driver.scheduler.add(make_request("a", max_tokens=max_tokens), self.driver.now)

    def after(self, seconds: float) -> bool:
        """Whether all is well then."""
        self.driver.now += seconds
        return self.watchdog.look(LIMIT_S)


def test_nothing_stalls_without_work() -> None:
    stage = Stage()
    assert stage.after(0.0)
    assert stage.after(3600.0)
    assert stage.watchdog.pace().seconds_since_step == 0.0


def test_work_that_waits_is_counted_from_when_there_was_none() -> None:
    stage = Stage()
    stage.after(100.0)
    stage.add()
    assert stage.after(30.0)
    assert stage.watchdog.pace().seconds_since_step == 30.0
    assert not stage.after(0.5)


def test_a_step_ends_the_waiting(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.after(0.0)
    stage.add()
    with caplog.at_level(logging.WARNING):
        assert not stage.after(31.0)
        assert not stage.after(31.0)
        stage.driver.step()
        assert stage.after(1.0)
    assert stage.watchdog.pace().seconds_since_step == 1.0
    assert [record.message for record in caplog.records] == [
        "there is work, and no step has ended for 31.0 s; the executor is there",
        "steps come to an end again",
    ]


def test_without_an_executor_nothing_is_well(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.after(0.0)
    stage.add()
    stage.driver.lose_executor(ReferenceExecutor())
    assert not stage.after(1.0)
    assert not stage.watchdog.pace().is_attached
    with caplog.at_level(logging.WARNING):
        assert not stage.after(30.0)
    assert [record.message for record in caplog.records] == [
        "there is work, and no step has ended for 31.0 s; there is no executor"
    ]
    stage.driver.scheduler.executor_ready(stage.driver.scheduler.engine, stage.driver.now)
    stage.driver.step()
    assert stage.after(0.0)


def test_rates_are_those_of_the_last_five_seconds() -> None:
    stage = Stage()
    stage.add(max_tokens=100)
    for _ in range(40):  # 10 s, a step in each quarter of a second
        stage.driver.step()
        stage.after(0.25)
    pace = stage.watchdog.pace()
    assert (pace.steps_per_s, pace.sampled_tokens_per_s) == (4.0, 4.0)
    for _ in range(10):
        stage.after(0.25)
    assert stage.watchdog.pace().steps_per_s == 2.0
    for _ in range(10):
        stage.after(0.25)
    assert stage.watchdog.pace().steps_per_s == 0.0


def test_the_last_step_stays_when_its_executor_goes() -> None:
    stage = Stage()
    stage.add()
    stage.driver.step()
    last = LastStep(stage.driver.now, 0.0)
    stage.driver.lose_executor(ReferenceExecutor())
    assert stage.watchdog.pace().last_step == last
