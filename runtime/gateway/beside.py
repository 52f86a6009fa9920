"""Work that may take long on one call's input, beside the event loop, which comes to its turn meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_INLINE_SIZE = 1 << 16  # bytes or elements; dealt with in a few milliseconds, whatever they are


async def beside_the_loop(work: Callable[[], T], size: int) -> T:
    """What `work` returns or raises; `size` is that of its input, of which megabytes can take half a second."""
    return work() if size <= _INLINE_SIZE else await asyncio.to_thread(work)
