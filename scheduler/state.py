"""A sequence's life: the states, and the one table of legal moves.

    WAITING ──start──► RUNNING ──finish──► FINISHED
                       │     ▲
                  preempt   start
                       ▼     │
                      PREEMPTED

Anything alive may finish: a client cancels, or a token that was in flight when the sequence was preempted ends it.
"""

from enum import Enum, auto


class State(Enum):
    WAITING = auto()  # never ran; holds no blocks and no slot
    RUNNING = auto()  # resident: holds a slot and its blocks
    PREEMPTED = auto()  # ran before; holds no device block and no slot
    FINISHED = auto()  # holds nothing; its one finish event has been emitted


class Move(Enum):
    START = auto()
    PREEMPT = auto()
    FINISH = auto()


MOVES: dict[tuple[State, Move], State] = {
    (State.WAITING, Move.START): State.RUNNING,
    (State.PREEMPTED, Move.START): State.RUNNING,
    (State.RUNNING, Move.PREEMPT): State.PREEMPTED,
    (State.WAITING, Move.FINISH): State.FINISHED,
    (State.RUNNING, Move.FINISH): State.FINISHED,
    (State.PREEMPTED, Move.FINISH): State.FINISHED,
}


class IllegalMove(Exception):
    """A fault of the scheduler itself: names the sequence, where it stood and the move; nothing has changed."""


def after(name: str, state: State, move: Move) -> State:
    """The state that `move` leads to. Raises IllegalMove."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMove(f"sequence {name} is {state.name}: it cannot {move.name.lower()}") from None
