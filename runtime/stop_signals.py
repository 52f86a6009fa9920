"""The signals that stop `jetway serve`."""

import asyncio
import signal
from collections.abc import Coroutine

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts SIGINT, SIGTERM and SIGHUP from now on: each ends one piece of work, and two at once are two.

    A SIGHUP that is ignored stays so, for nohup's sake. Made inside the running event loop of the main thread.
    """

    def __init__(self) -> None:
        self._arrived = asyncio.Semaphore(0)
        for number in _NUMBERS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, self._arrived.release)

    async def until_next(self, work: Coroutine[None, None, None]) -> bool:
        """Run `work` to its end, or cancel it at the next signal: then False. Raises what it raises."""
        task = asyncio.ensure_future(work)
        next_signal = asyncio.ensure_future(self._arrived.acquire())
        next_signal.add_done_callback(lambda _: task.cancel())
        try:
            await task
        except asyncio.CancelledError:
            return False
        finally:
            next_signal.cancel()
        if next_signal.done():  # it came as the work ended by itself, and is for the next
            self._arrived.release()
        return True
