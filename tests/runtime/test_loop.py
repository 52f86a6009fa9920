"""plan -> execute -> commit, and what the loop leaves behind when the executor goes."""

import asyncio
import gc
from dataclasses import dataclass

import pytest

from jetway.runtime.errors import Unavailable
from jetway.runtime.garbage import PAUSES_PER_YOUNG, kept_out_of_steps
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.scheduler.events import Event, FinishReason, RequestFinished, SequenceFinished, TokenSampled
from jetway.scheduler.plan import StepPlan, StepResult
from tests.support.scheduling import ReferenceExecutor, expected_tokens, make_engine, make_request, make_scheduler
from tests.support.step_service import SteppedExecutor


@pytest.mark.parametrize(("depth", "num_micro_batches"), [(0, 1), (1, 1), (4, 5)])
async def test_it_steps_while_there_is_work_and_sleeps_until_there_is_more(depth: int, num_micro_batches: int) -> None:
    scheduler = make_scheduler(num_micro_batches=num_micro_batches)
    executor, work = SteppedExecutor(ReferenceExecutor()), asyncio.Event()
    said: list[Event] = []
    done = asyncio.Event()

    def publish(events: list[Event]) -> None:
        said.extend(events)
        if any(isinstance(event, RequestFinished) for event in events):
            done.set()

    running = asyncio.create_task(StepLoop(scheduler, publish, work, lambda: 0.0, FixedOverlap(depth)).run(executor))
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
        await StepLoop(scheduler, lambda events: None, work, lambda: 0.0, FixedOverlap(0)).run(executor)
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


@pytest.mark.parametrize(("depth", "num_unanswered"), [(0, 1), (1, 2)])
async def test_it_plans_ahead_of_the_results_as_far_as_it_may(depth: int, num_unanswered: int) -> None:
    scheduler, executor, work = make_scheduler(), SteppedExecutor(ReferenceExecutor()), asyncio.Event()
    executor.hold_after(0)
    scheduler.add(make_request("a", max_tokens=8), 0.0)
    loop = StepLoop(scheduler, lambda events: None, work, lambda: 0.0, FixedOverlap(depth))
    running = asyncio.create_task(loop.run(executor))
    await executor.asked.wait()
    assert executor.num_sent == num_unanswered
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@dataclass
class ChangingOverlap:
    depth: int = 1

    def observe(self, *, gap_s: float, elapsed_s: float) -> None:
        self.depth = 0


async def test_it_returns_to_one_plan_at_a_time() -> None:
    scheduler, executor, work, done = (
        make_scheduler(),
        SteppedExecutor(ReferenceExecutor()),
        asyncio.Event(),
        asyncio.Event(),
    )
    unanswered: list[int] = []

    def publish(events: list[Event]) -> None:
        unanswered.append(executor.num_sent - executor.num_received)
        if any(isinstance(event, RequestFinished) for event in events):
            done.set()

    scheduler.add(make_request("a", max_tokens=8), 0.0)
    loop = StepLoop(scheduler, publish, work, lambda: 0.0, ChangingOverlap())
    running = asyncio.create_task(loop.run(executor))
    await done.wait()
    assert max(unanswered[:4]) == 1
    assert set(unanswered[-4:]) == {0}
    running.cancel()


async def test_an_executor_that_goes_while_nothing_is_to_do_is_noticed() -> None:
    scheduler, executor = make_scheduler(), SteppedExecutor(ReferenceExecutor())
    loop = StepLoop(scheduler, lambda events: None, asyncio.Event(), lambda: 0.0, FixedOverlap(0))
    running = asyncio.create_task(loop.run(executor))
    executor.gone.set()
    with pytest.raises(Unavailable, match="the executor is lost"):
        await running


async def test_while_it_rests_deadlines_pass() -> None:
    scheduler, work, done = make_scheduler(), asyncio.Event(), asyncio.Event()
    said: list[Event] = []
    now = 0.0

    def publish(events: list[Event]) -> None:
        said.extend(events)
        if said:
            done.set()

    scheduler.executor_lost(now)
    loop = StepLoop(scheduler, publish, work, lambda: now, FixedOverlap(0))
    resting = asyncio.create_task(loop.rest())
    scheduler.add(make_request("a", deadline_s=5.0), now)
    now = 6.0
    work.set()
    await done.wait()
    assert [event.reason for event in said if isinstance(event, SequenceFinished)] == [FinishReason.EXPIRED]
    resting.cancel()


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
            running = asyncio.create_task(
                StepLoop(scheduler, publish, work, lambda: 0.0, FixedOverlap(0)).run(executor)
            )
            await done.wait()
        finally:
            gc.callbacks.remove(note)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert during == [True, True]
