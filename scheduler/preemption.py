"""Who yields when slots or blocks run out.

One total order: rank = (lane first, level, first start, arrival). Slots and blocks are taken only from worse ranks: by
a waiting sequence from worse levels, by a running one that needs its next block also inside its own level; the worst
itself yields. So the best rank always gets what it needs, and since every admitted sequence fits the pool alone, it
always finishes. Among the worst level the cheapest to restore goes first (least computed first: vllm RFC 54644, where
half of the recompute tax is victim choice), then the latest start.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from .sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Reluctance:
    """Preferences inside a level; they never make a better level wait."""

    min_steps_between: int = 32  # rather not preempt a sequence again within so many steps
    max_preemptions: int = 8  # rather not preempt one that was preempted so often

    def spares(self, sequence: Sequence, step: int) -> bool:
        recent = sequence.last_preempted is not None and step - sequence.last_preempted < self.min_steps_between
        return recent or sequence.num_preemptions >= self.max_preemptions


def displaceable(residents: Iterable[Sequence], standing: int) -> list[Sequence]:
    """From whom a waiting sequence of this standing may take: every worse level."""
    return [sequence for sequence in residents if sequence.standing > standing]


def yielding(residents: Iterable[Sequence], taker: Sequence) -> list[Sequence]:
    """From whom a resident that must grow may take: every worse rank."""
    return [sequence for sequence in residents if sequence.rank > taker.rank]


class Room(Protocol):
    """Judges, as residents leave one after the other in thought, whether that is enough."""

    @property
    def is_enough(self) -> bool: ...

    def leave(self, sequence: Sequence) -> None: ...


def choose_victims(
    candidates: list[Sequence], *, step: int, reluctance: Reluctance, room: Callable[[], Room]
) -> list[Sequence] | None:
    """As few candidates, in the order in which they yield, as make enough `room`; None when all together do not."""
    order = sorted(
        candidates,
        key=lambda sequence: (
            -sequence.standing,
            reluctance.spares(sequence, step),
            sequence.computed,
            -sequence.seniority[0],
        ),
    )
    victims: list[Sequence] = []
    made = room()
    for sequence in order:
        victims.append(sequence)
        made.leave(sequence)
        if made.is_enough:
            break
    else:
        return None
    for spared in victims[:-1]:  # the last was needed, and may do for several before it
        rest = [each for each in victims if each is not spared]
        if _makes_enough(room(), rest):
            victims = rest
    return victims


def _makes_enough(room: Room, victims: list[Sequence]) -> bool:
    for sequence in victims:
        room.leave(sequence)
    return room.is_enough
