"""What is said to `jetway serve` from outside: to stop, or to renew its gateways."""

import asyncio
import os
import signal
from collections.abc import Coroutine


class Signals:
    """Counts what stops from now on: each ends one piece of work, and two at once are two.

    SIGINT and SIGTERM stop, and so does SIGHUP when the terminal is gone; any other SIGHUP sets `renew`, unless it is
    ignored, for nohup's sake. Made inside the running event loop of the main thread.
    """

    def __init__(self) -> None:
        self.renew = asyncio.Event()
        self._stops = asyncio.Semaphore(0)
        self._had_terminal = _has_terminal()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def stop(self) -> None:
        """As if a signal had come."""
        self._stops.release()

    async def until_next(self, work: Coroutine[None, None, None]) -> bool:
        """Run `work` to its end, or cancel it at the next stop: then False. Raises what it raises."""
        task = asyncio.ensure_future(work)
        next_stop = asyncio.ensure_future(self._stops.acquire())
        next_stop.add_done_callback(lambda _: task.cancel())
        try:
            await task
        except asyncio.CancelledError:
            return False
        finally:
            next_stop.cancel()
        if next_stop.done():  # it came as the work ended by itself, and is for the next
            self._stops.release()
        return True

    def _hang_up(self) -> None:
        if self._had_terminal and not _has_terminal():
            self.stop()
        else:
            self.renew.set()


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
