"""One executor after the other: when one is lost, what lives waits for the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from jetway.scheduler.limits import LimitError
from jetway.scheduler.plan import EngineDescription
from jetway.scheduler.scheduler import Scheduler

from .errors import Unavailable
from .loop import Executor, StepLoop

log = logging.getLogger(__name__)


class Session(Executor, Protocol):
    """A fresh session with an executor that serves `engine`."""

    @property
    def engine(self) -> EngineDescription: ...

    async def close(self) -> None: ...


async def step_with_each(
    scheduler: Scheduler,
    loop: StepLoop,
    session: Session,
    connect: Callable[[], Awaitable[Session]],
    clock: Callable[[], float],
) -> None:
    """Step for ever: with `session`, whose engine the scheduler plans for, then with whatever `connect` gives.

    Raises Unavailable when a new executor cannot do what the limits allow or serves another engine, Fenced when a newer
    scheduler has it.
    """
    while True:
        try:
            await loop.run(session)
        except Unavailable as error:
            log.warning("%s; every request goes on with the next one", error.message)
        finally:
            await session.close()
        session = await _next(loop, connect)
        try:
            scheduler.executor_ready(session.engine, clock())
        except LimitError as error:
            await session.close()
            raise Unavailable(str(error)) from error


async def _next(loop: StepLoop, connect: Callable[[], Awaitable[Session]]) -> Session:
    async with asyncio.TaskGroup() as tasks:
        resting = tasks.create_task(loop.rest())
        session = await connect()
        resting.cancel()
    return session
