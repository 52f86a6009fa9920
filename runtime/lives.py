"""One role, life after life."""

import asyncio
import itertools
import signal
import time

from .config import ServeConfig
from .errors import ConfigError, Unavailable
from .launcher import Launcher, Life
from .logs import Console

_FIRST_DELAY_S = 0.1  # before a lost life is replaced; doubles while lives are short ...
_LONGEST_DELAY_S = 10.0  # ... up to this
_SHORT_LIFE_S = 30.0


class Lives:
    """Keeps a role alive: at most one life at a time, and the next one once nothing is left of the one before."""

    def __init__(self, name: str, launcher: Launcher, config: ServeConfig, console: Console) -> None:
        self.name = name
        self._launcher = launcher
        self._config = config
        self._console = console
        self._life: Life | None = None
        self._num_lives = 0
        self._delay_s = _FIRST_DELAY_S
        self._stopping = False

    async def start(self) -> None:
        """Begin a life and wait until it serves.

        Raises ConfigError when it refuses, Unavailable when it fails or is not wanted any more.
        """
        started_s = time.monotonic()
        self._life = await self._launcher.launch(self.name)
        if self._stopping:  # `stop` came meanwhile, and saw no life to end
            await self.end()
            raise Unavailable(f"the {self.name} is to stop")
        facts = await self._life.ready(self._config.start_timeout_s, self._num_lives)
        self._num_lives += 1
        self._console.say(f"{self.name} ready in {time.monotonic() - started_s:.1f} s")
        for name, value in facts.items():
            self._console.say(f"  {name:8} {value}")

    async def lost(self) -> None:
        """Return never: raises Unavailable when the life has ended."""
        raise Unavailable(await self._present.ended(self._config.hang_timeout_s))

    async def keep(self) -> None:
        """Replace every life that ends, until `stop`. Raises Unavailable when too many in a row fail to start."""
        while not self._stopping:
            born_s = time.monotonic()
            loss = await self._present.ended(self._config.hang_timeout_s)
            if self._stopping:
                return
            await self.end()
            self._console.say(loss)
            if time.monotonic() - born_s > _SHORT_LIFE_S:
                self._delay_s = _FIRST_DELAY_S
            await self._replace()

    def begin_no_other(self) -> None:
        """The present life is the last."""
        self._stopping = True

    async def stop(self, bound_s: float, number: signal.Signals = signal.SIGTERM) -> str | None:
        """Let the last life end, by a signal; it is killed after `bound_s`. What went wrong, if something did."""
        self.begin_no_other()
        return None if self._life is None else await self._life.child.stop(bound_s, number)

    async def end(self) -> None:
        """Leave nothing of the present life. Idempotent."""
        if self._life is not None:
            await self._life.end()
            self._life = None

    @property
    def _present(self) -> Life:
        assert self._life is not None, f"no {self.name} lives"
        return self._life

    async def _replace(self) -> None:
        """Begin the next life, unless `stop` comes first. Raises Unavailable after `max_failed_starts`."""
        for num_failed in itertools.count(1):
            await asyncio.sleep(self._delay_s)
            self._delay_s = min(2 * self._delay_s, _LONGEST_DELAY_S)
            if self._stopping:
                return
            try:
                await self.start()
                return
            except (ConfigError, Unavailable) as error:
                if self._stopping:
                    return
                await self.end()
                if num_failed == self._config.max_failed_starts:
                    message = f"the {self.name} failed to start {num_failed} times in a row; {error.message}"
                    raise Unavailable(message) from None
                self._console.say(error.message)
