"""Clients that do not read: found without a timer for each write."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self

_CHECKS_PER_LIMIT = 4


class StallLimit:
    """Inside `async with`, a `write` that takes `limit_s`, give or take a quarter, ends the block with TimeoutError."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._writing_since: float | None = None

    @property
    def writing(self) -> bool:
        return self._writing_since is not None

    async def write(self, sent: Awaitable[object]) -> None:
        """Wait until it is sent. One write at a time."""
        self._writing_since = self._loop.time()
        await sent
        self._writing_since = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)

    def _check(self) -> None:
        now = self._loop.time()
        if self._writing_since is not None and now - self._writing_since >= self._limit_s:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_later(self._limit_s / _CHECKS_PER_LIMIT, self._check)
