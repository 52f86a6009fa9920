"""Who may touch which memory at the same time: a race detector for work on streams, by vector clocks.

The host and every stream are threads. What one of them does is ordered before what another does only by an event that
the other waits for, or by the host's waiting; two accesses to one unit of memory without such an order, one of them a
write, are a race, whether or not it would have hurt this time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class RaceFound(AssertionError):
    """On a device, this could have computed something else."""


class Unit(NamedTuple):
    """A piece of an allocation, by its place."""

    memory: str
    place: int


class Act(NamedTuple):
    """One thing that a thread does: its number among them, and what it is."""

    thread: str
    number: int
    what: str


@dataclass
class Thread:
    """The host or a stream, and how far it knows each other to have come."""

    name: str
    known: dict[str, int] = field(default_factory=dict)

    def begin(self, what: str) -> Act:
        number = self.known.get(self.name, 0) + 1
        self.known[self.name] = number
        return Act(self.name, number, what)

    def knows(self, act: Act) -> bool:
        return self.known.get(act.thread, 0) >= act.number

    def learn(self, known: dict[str, int]) -> None:
        self.known |= {name: max(number, self.known.get(name, 0)) for name, number in known.items()}


class Races:
    """Remembers for each unit who wrote it last and who has read it since."""

    def __init__(self) -> None:
        self._writers: dict[Unit, Act] = {}
        self._readers: dict[Unit, dict[str, Act]] = {}

    def access(self, thread: Thread, what: str, reads: Iterable[Unit] = (), writes: Iterable[Unit] = ()) -> None:
        """Raises RaceFound."""
        act = thread.begin(what)
        for unit in reads:
            self._check(thread, what, f"reads {unit}, which may still be written by", self._writers.get(unit))
            self._readers.setdefault(unit, {})[thread.name] = act
        for unit in writes:
            self._check(thread, what, f"writes {unit}, which may still be written by", self._writers.get(unit))
            for reader in self._readers.pop(unit, {}).values():
                self._check(thread, what, f"writes {unit}, which may still be read by", reader)
            self._writers[unit] = act

    def free(self, host: Thread, units: Iterable[Unit]) -> None:
        """Forget memory that is gone. Raises RaceFound where its last use is not known to be over."""
        for unit in units:
            users = [*self._readers.pop(unit, {}).values(), self._writers.pop(unit, None)]
            for user in users:
                self._check(host, "the memory's end", f"frees {unit}, which may still be used by", user)

    def _check(self, thread: Thread, what: str, problem: str, other: Act | None) -> None:
        if other is not None and not thread.knows(other):
            raise RaceFound(f"{what} on {thread.name} {problem} {other.what} on {other.thread}")
