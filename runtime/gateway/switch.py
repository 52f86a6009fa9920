"""On or off, for those who wait for either."""

import asyncio


class Switch:
    """Exactly one of `on` and `off` is set. Off at first."""

    def __init__(self) -> None:
        self.on = asyncio.Event()
        self.off = asyncio.Event()
        self.off.set()

    def turn(self, *, on: bool) -> None:
        now, before = (self.on, self.off) if on else (self.off, self.on)
        before.clear()
        now.set()
