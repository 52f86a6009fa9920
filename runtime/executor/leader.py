"""Rank 0 of an engine of several ranks: it has the session, and tells the others what it does.

Every rank runs `Slots` of its own over its own part of the engine. They do the same as long as each has collected the same
results when it launches a plan: so a plan goes out with their number, and with a digest of what they decided.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np

from jetway.scheduler.plan import StepPlan, StepResult

from .rank_messages import send
from .ranks import Channel, Ranks


class Followers(Protocol):
    """The other ranks, during one session. `Slots` tells them under its lock, in order."""

    def launch(self, plan: StepPlan) -> None:
        """The plan is launched here, as of the results collected so far. Raises EngineFailed when they are gone."""
        ...

    def collected(self, result: StepResult) -> None:
        """A result has been collected here."""
        ...


class NoFollowers:
    """There is one rank."""

    def launch(self, plan: StepPlan) -> None:
        pass

    def collected(self, result: StepResult) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Launch:
    """Collect results until there are `num_collected`, then launch. Step 1 begins a session: all of the last is over."""

    plan: StepPlan
    num_collected: int
    digest: bytes  # of those results


@dataclass(frozen=True, slots=True)
class End:
    """Rank 0 ends."""


class Decisions:
    """What a session's results have decided: equal digests, equal sequences in every rank."""

    def __init__(self) -> None:
        self.num_results = 0
        self._digest = blake2b(digest_size=16)

    def add(self, result: StepResult) -> None:
        skipped, failed = sorted(result.skipped), [slot for slot, _ in result.failures]
        numbers = [result.step]
        for values in (result.slots, result.tokens, result.stopped, skipped, failed):
            numbers += [len(values), *values]
        self._digest.update(np.array(numbers, np.int64).tobytes())
        self.num_results += 1

    @property
    def digest(self) -> bytes:
        return self._digest.digest()


class Leader:
    """Rank 0's way to all others."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def new_session(self) -> Followers:
        """The others, for a session. It may launch once all steps of the one before it have been collected."""
        return FollowersByRank(self._ranks)

    def end(self) -> None:
        """The others end. Raises EngineFailed when they cannot be told."""
        _tell_all(self._ranks, End())


class FollowersByRank:
    """All ranks but this one, which is 0."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._decisions = Decisions()

    def launch(self, plan: StepPlan) -> None:
        _tell_all(self._ranks, Launch(plan, self._decisions.num_results, self._decisions.digest))

    def collected(self, result: StepResult) -> None:
        self._decisions.add(result)


def _tell_all(ranks: Ranks, order: Launch | End) -> None:
    for rank in range(1, ranks.size):
        send(order, ranks, rank, Channel.PLANS)
