"""The step loop: plan -> execute -> commit."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from jetway.scheduler.events import Event
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.scheduler import Scheduler

from .garbage import Garbage
from .overlap import Overlap


class Executor(Protocol):
    """Runs plans in the order sent; gives one result a plan, in that order. Raises Unavailable when it is lost."""

    async def send(self, plan: StepPlan) -> None: ...

    async def receive(self) -> StepResult: ...


class StepLoop:
    """Drives one scheduler and, one after the other, its executors, on one event loop.

    `publish` takes the scheduler's events; `clock` gives seconds; `overlap` says how many plans may be sent before their
    results. Whoever changes the scheduler between steps sets `work`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        publish: Callable[[list[Event]], None],
        work: asyncio.Event,
        clock: Callable[[], float],
        overlap: Overlap,
    ) -> None:
        self._scheduler = scheduler
        self._publish = publish
        self._work = work
        self._clock = clock
        self._overlap = overlap
        self._garbage = Garbage()

    async def run(self, executor: Executor) -> None:
        """Step for ever. Raises Unavailable when the executor is lost; live sequences then wait in the scheduler."""
        num_in_flight = 0
        try:
            while True:
                began = self._clock()
                plan = self._plan(began)
                if plan is not None:
                    await executor.send(plan)
                    num_in_flight += 1
                self._garbage.pause()  # the executor computes, or there is nothing to do
                if num_in_flight > (0 if plan is None else self._overlap.depth):
                    await self._commit(executor, began)
                    num_in_flight -= 1
                elif plan is None:
                    await self._wait()
        finally:
            self._scheduler.executor_lost(self._clock())

    async def rest(self) -> None:
        """Without an executor, for ever: nothing is computed, but deadlines pass."""
        while True:
            self._plan(self._clock())
            await self._wait()

    def _plan(self, now: float) -> StepPlan | None:
        self._work.clear()
        plan = self._scheduler.plan(now)
        self._publish(self._scheduler.events())
        return plan

    async def _commit(self, executor: Executor, began: float) -> None:
        """Wait for the oldest result and take it."""
        result = await executor.receive()
        now = self._clock()
        self._scheduler.commit(result, now)
        self._publish(self._scheduler.events())
        self._overlap.observe(gap_s=self._clock() - began - result.elapsed_s, elapsed_s=result.elapsed_s)

    async def _wait(self) -> None:
        """Until the scheduler changes, or time brings it work."""
        wake_at = self._scheduler.wake_at()
        timeout_s = None if wake_at is None else max(0.0, wake_at - self._clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._work.wait()
