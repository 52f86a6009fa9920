"""Whether steps come while there is work for them: the scheduler's watchdog, and its rates."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from jetway.scheduler.scheduler import Scheduler
from jetway.scheduler.stats import LastStep

log = logging.getLogger(__name__)

LOOK_S = 0.25  # between two looks
_NUM_LOOKS = 21  # that are remembered: rates are over the last 5 s


class Pace(NamedTuple):
    """How steps come."""

    is_attached: bool  # an executor is there
    seconds_since_step: float  # while something is resident or waits; else 0
    last_step: LastStep | None
    steps_per_s: float
    sampled_tokens_per_s: float


class Tell(Protocol):
    def __call__(self, *, ready: bool) -> None: ...


class _Look(NamedTuple):
    at: float
    num_steps: int
    num_sampled_tokens: int


class Watchdog:
    """Looks at a scheduler, whose clock is `clock`, from time to time."""

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._idle_at = clock()  # when there was no work last
        self._looks: deque[_Look] = deque(maxlen=_NUM_LOOKS)
        self._is_stalled = False

    def pace(self) -> Pace:
        """As it stands."""
        now, progress = self._clock(), self._scheduler.progress()
        last = progress.last_step
        since = self._idle_at if last is None else max(self._idle_at, last.committed_at)
        oldest = self._looks[0] if self._looks else _Look(now, progress.num_steps, progress.num_sampled_tokens)
        elapsed_s = max(now - oldest.at, LOOK_S)
        return Pace(
            is_attached=progress.is_attached,
            seconds_since_step=now - since if progress.has_work else 0.0,
            last_step=last,
            steps_per_s=(progress.num_steps - oldest.num_steps) / elapsed_s,
            sampled_tokens_per_s=(progress.num_sampled_tokens - oldest.num_sampled_tokens) / elapsed_s,
        )

    def look(self, limit_s: float) -> bool:
        """Whether it is well: an executor is there, and work has not waited for a step for longer than `limit_s`.

        Says in the log that it has, once each time.
        """
        now, progress = self._clock(), self._scheduler.progress()
        if not progress.has_work:
            self._idle_at = now
        self._looks.append(_Look(now, progress.num_steps, progress.num_sampled_tokens))
        waited_s = self.pace().seconds_since_step
        was_stalled, self._is_stalled = self._is_stalled, waited_s > limit_s
        if self._is_stalled and not was_stalled:
            where = "the executor is there" if progress.is_attached else "there is no executor"
            log.warning("there is work, and no step has ended for %.1f s; %s", waited_s, where)
        elif was_stalled and not self._is_stalled:
            log.warning("steps come to an end again")
        return progress.is_attached and not self._is_stalled

    async def watch(self, tell: Tell, limit_s: float) -> None:
        """Look for ever, and `tell` each time whether it is well."""
        while True:
            tell(ready=self.look(limit_s))
            await asyncio.sleep(LOOK_S)
