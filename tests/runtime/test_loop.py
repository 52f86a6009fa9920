"""plan -> execute -> commit, and what the loop leaves behind when the executor goes."""

import asyncio
import gc

import pytest

from jetway.runtime.errors import Unavailable
from jetway.runtime.garbage import PAUSES_PER_YOUNG, kept_out_of_steps
from jetway.runtime.loop import StepLoop
from jetway.scheduler.events import Event, RequestFinished, TokenSampled
from jetway.scheduler.plan import StepPlan, StepResult
from tests.support.scheduling import ReferenceExecutor, expected_tokens, make_engine, make_request, make_scheduler
from tests.support.step_service import SteppedExecutor


async def test_it_steps_while_there_is_work_and_sleeps_until_there_is_more() -> None:
    scheduler, executor, work = make_scheduler(), SteppedExecutor(ReferenceExecutor()), asyncio.Event()
    said: list[Event] = []
    done = asyncio.Event()

    def publish(events: list[Event]) -> None:
        said.extend(events)
        if any(isinstance(event, RequestFinished) for event in events):
            done.set()

    running = asyncio.create_task(StepLoop(scheduler, executor, publish, work, lambda: 0.0).run())
    for id in "ab":
        scheduler.add(make_request(id), 0.0)
        work.set()
        await done.wait()
        done.clear()
        tokens = [event.token for event in said if isinstance(event, TokenSampled)]
        assert tokens == expected_tokens(make_request(id))
        said.clear()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_lost_executor_ends_the_loop_and_no_request() -> None:
    scheduler, executor, work = make_scheduler(), SteppedExecutor(ReferenceExecutor()), asyncio.Event()
    scheduler.add(make_request("a"), 0.0)
    executor.lost = True
    with pytest.raises(Unavailable, match="the executor is lost"):
        await StepLoop(scheduler, executor, lambda events: None, work, lambda: 0.0).run()
    assert (scheduler.stats(0.0).num_running, scheduler.stats(0.0).num_waiting) == (0, 1)
    scheduler.executor_ready(make_engine(), 0.0)
    assert scheduler.plan(0.0) is not None


class Computing(SteppedExecutor):
    """Knows whether a plan is between `send` and `receive`."""

    computes = False

    async def send(self, plan: StepPlan) -> None:
        await super().send(plan)
        self.computes = True

    async def receive(self) -> StepResult:
        result = await super().receive()
        self.computes = False
        return result


async def test_garbage_is_collected_while_the_executor_computes_only() -> None:
    scheduler, work, done = make_scheduler(), asyncio.Event(), asyncio.Event()
    executor = Computing(ReferenceExecutor())
    during: list[bool] = []
    allocated: list[list[int]] = []

    def publish(events: list[Event]) -> None:
        allocated.extend([] for _ in range(1000))  # as many as make Python collect by itself
        if any(isinstance(event, RequestFinished) for event in events):
            done.set()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            during.append(executor.computes)

    scheduler.add(make_request("a", max_tokens=2 * PAUSES_PER_YOUNG + 1), 0.0)
    with kept_out_of_steps():
        gc.callbacks.append(note)
        try:
            running = asyncio.create_task(StepLoop(scheduler, executor, publish, work, lambda: 0.0).run())
            await done.wait()
        finally:
            gc.callbacks.remove(note)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert during == [True, True]
