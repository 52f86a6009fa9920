"""The step loop: plan -> execute -> commit."""

import asyncio
from asyncio import FIRST_COMPLETED
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from jetway.scheduler.events import Event
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.scheduler import Scheduler

from .errors import JetwayError
from .garbage import Garbage
from .overlap import Overlap


class Executor(Protocol):
    """Runs plans in the order sent; gives one result a plan, in that order. Raises Unavailable when it is lost."""

    async def send(self, plan: StepPlan) -> None: ...

    async def receive(self) -> StepResult: ...

    async def ended(self) -> JetwayError:
        """Why it is lost, once it is."""


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
        sent: deque[StepPlan] = deque()  # without a result yet
        ended = asyncio.ensure_future(executor.ended())
        try:
            while True:
                began = self._clock()
                plan = self._plan(began)
                if plan is not None:
                    await executor.send(plan)
                    sent.append(plan)
                self._garbage.pause()  # the executor computes, or there is nothing to do
                if plan is None and sent:  # all that could be planned is in flight
                    await self._commit(executor, sent, began)
                elif plan is None:
                    await self._wait(ended)
                while len(sent) > self._overlap.depth:
                    await self._commit(executor, sent, began)
        finally:
            ended.cancel()
            self._scheduler.executor_lost(self._clock(), num_sent=len(sent))

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

    async def _commit(self, executor: Executor, sent: deque[StepPlan], began: float) -> None:
        """Wait for the result of the oldest plan and take it."""
        result = await executor.receive()
        plan = sent.popleft()
        self._scheduler.commit(result, self._clock())
        self._publish(self._scheduler.events())
        if plan.row_slots:
            self._overlap.observe(gap_s=self._clock() - began - result.elapsed_s, elapsed_s=result.elapsed_s)

    async def _wait(self, ended: asyncio.Future[JetwayError] | None = None) -> None:
        """Until the scheduler changes, or time brings it work. Raises what the executor's session ended with."""
        wake_at = self._scheduler.wake_at()
        timeout_s = None if wake_at is None else max(0.0, wake_at - self._clock())
        changed = asyncio.ensure_future(self._work.wait())
        either: list[asyncio.Future[Any]] = [changed] if ended is None else [changed, ended]
        try:
            await asyncio.wait(either, timeout=timeout_s, return_when=FIRST_COMPLETED)
        finally:
            changed.cancel()
        if ended is not None and ended.done():
            raise ended.result()
