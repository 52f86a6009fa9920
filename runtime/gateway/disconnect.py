"""Work for one HTTP request, for as long as its client is there."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


async def until_disconnect(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Run `work`, which is cancelled when the client goes away first. Raises what `work` raises."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if not working.cancelled():
        working.result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
