"""The table of legal moves, walked whole."""

from itertools import product

import pytest

from jetway.scheduler.request import SequenceId
from jetway.scheduler.sequence import Sequence
from jetway.scheduler.state import MOVES, IllegalMove, Move, State
from tests.support.scheduling import make_request


def make_sequence(state: State) -> Sequence:
    sequence = Sequence(make_request("a"), SequenceId("a", 0), order=0, max_output=4)
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
    sequence = make_sequence(state)
    sequence.move(move)
    assert sequence.state is MOVES[state, move]


@pytest.mark.parametrize(("state", "move"), sorted(set(product(State, Move)) - set(MOVES), key=str))
def test_an_illegal_move_names_all_three_and_changes_nothing(state: State, move: Move) -> None:
    sequence = make_sequence(state)
    with pytest.raises(IllegalMove, match=f"sequence a/0 is {state.name}: it cannot {move.name.lower()}"):
        sequence.move(move)
    assert sequence.state is state
