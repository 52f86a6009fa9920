"""The step loop: plan -> execute -> commit."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from jetway.scheduler.events import Event
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.scheduler import Scheduler

from .garbage import Garbage


class Executor(Protocol):
    """Runs plans in the order sent; gives one result a plan, in that order. Raises Unavailable when it is lost."""

    async def send(self, plan: StepPlan) -> None: ...

    async def receive(self) -> StepResult: ...


class StepLoop:
    """Drives one scheduler and one executor, one step at a time, on one event loop.

    `publish` takes the scheduler's events; `clock` gives seconds. Whoever changes the scheduler between steps sets
    `work`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        publish: Callable[[list[Event]], None],
        work: asyncio.Event,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._publish = publish
        self._work = work
        self._clock = clock
        self._garbage = Garbage()

    async def run(self) -> None:
        """Step for ever. Raises Unavailable when the executor is lost; live sequences then wait in the scheduler."""
        try:
            while True:
                self._work.clear()
                plan = self._scheduler.plan(self._clock())
                self._publish(self._scheduler.events())
                if plan is None:
                    self._garbage.pause()
                    await self._wait()
                    continue
                await self._executor.send(plan)
                self._garbage.pause()  # the executor computes
                result = await self._executor.receive()
                self._scheduler.commit(result, self._clock())
                self._publish(self._scheduler.events())
        finally:
            self._scheduler.executor_lost(self._clock())

    async def _wait(self) -> None:
        """Until the scheduler changes, or time brings it work."""
        wake_at = self._scheduler.wake_at()
        timeout_s = None if wake_at is None else max(0.0, wake_at - self._clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._work.wait()
