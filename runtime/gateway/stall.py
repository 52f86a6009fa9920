"""Clients that stand still: found without a timer for each wait."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

_CHECKS_PER_LIMIT = 4

_T = TypeVar("_T")


class StallLimit:
    """Inside `async with`, a `wait` that takes `limit_s`, give or take a quarter, ends the block with TimeoutError.

    Counts looks, not time: while the event loop itself stands still, no client could be heard.
    """

    def __init__(self, limit_s: float) -> None:
        self._interval_s = limit_s / _CHECKS_PER_LIMIT
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._num_checks: int | None = None  # of the wait that is on

    @property
    def waiting(self) -> bool:
        return self._num_checks is not None

    async def wait(self, client: Awaitable[_T]) -> _T:
        """What the client lets happen: to be sent something, or to be heard. One wait at a time."""
        self._num_checks = 0
        result = await client
        self._num_checks = None
        return result

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._timer = self._loop.call_later(self._interval_s, self._check)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)

    def _check(self) -> None:
        if self._num_checks is not None:
            self._num_checks += 1
            if self._num_checks > _CHECKS_PER_LIMIT:
                self._timeout.reschedule(self._loop.time())
                return
        self._timer = self._loop.call_later(self._interval_s, self._check)
