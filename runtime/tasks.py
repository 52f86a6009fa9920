"""Work beside work, and until the process is told to stop."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress


async def until_told_to_stop(work: Coroutine[None, None, object]) -> None:
    """Do `work` until its end or SIGTERM. Raises what it raises."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


@contextmanager
def beside(work: Coroutine[None, None, None]) -> Iterator[None]:
    """Do `work`, which has no end, as long as the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
