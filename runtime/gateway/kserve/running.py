"""Requests that run, by their public ids: so that another request can stop them."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class Stopped(Exception):
    """Another request asked for the end of this one."""


class RequestName(NamedTuple):
    """A tenant stops its own requests only."""

    tenant: str
    request_id: str


class Stoppable:
    """Waits for one request's news until `stop` is called."""

    def __init__(self) -> None:
        self._stopped = False
        self._waiting: asyncio.Timeout | None = None

    def stop(self) -> None:
        self._stopped = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def wait(self, news: Awaitable[_T]) -> _T:
        """Raises Stopped; `news` is cancelled then."""
        try:
            async with asyncio.timeout(0 if self._stopped else None) as self._waiting:
                return await news
        except TimeoutError:
            raise Stopped from None
        finally:
            self._waiting = None


class RunningRequests:
    """Several may have one name, as in Triton."""

    def __init__(self) -> None:
        self._running: dict[RequestName, set[Stoppable]] = {}

    @contextmanager
    def entered(self, name: RequestName) -> Iterator[Stoppable]:
        """Can be stopped while inside."""
        stoppable = Stoppable()
        same = self._running.setdefault(name, set())
        same.add(stoppable)
        try:
            yield stoppable
        finally:
            same.remove(stoppable)
            if not same:
                del self._running[name]

    def stop(self, name: RequestName) -> None:
        """One that runs no more is no error: its end crossed the stop."""
        for stoppable in self._running.get(name, ()):
            stoppable.stop()
