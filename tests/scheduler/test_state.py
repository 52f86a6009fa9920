"""The table of legal moves, walked whole."""

from itertools import product

import pytest

from jetway.scheduler.sequence import Sequence
from jetway.scheduler.state import MOVES, IllegalMove, Move, State
from tests.support.scheduling import make_sequence


def sequence_in(state: State) -> Sequence:
    sequence = make_sequence("a")
    for move in {
        State.WAITING: [],
        State.RUNNING: [Move.START],
        State.PREEMPTED: [Move.START, Move.PREEMPT],
        State.FINISHED: [Move.FINISH],
    }[state]:
        sequence.move(move)
    return sequence


@pytest.mark.parametrize(("state", "move"), MOVES)
def test_a_legal_move_leads_where_the_table_says(state: State, move: Move) -> None:
    sequence = sequence_in(state)
    sequence.move(move)
    assert sequence.state is MOVES[state, move]


@pytest.mark.parametrize(("state", "move"), sorted(set(product(State, Move)) - set(MOVES), key=str))
def test_an_illegal_move_names_all_three_and_changes_nothing(state: State, move: Move) -> None:
    sequence = sequence_in(state)
    with pytest.raises(IllegalMove, match=f"sequence a/0 is {state.name}: it cannot {move.name.lower()}"):
        sequence.move(move)
    assert sequence.state is state
