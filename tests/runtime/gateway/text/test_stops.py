"""Stop strings in text that comes in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetway.runtime.gateway.text.stops import StopStrings


def run(stops: StopStrings, pieces: list[str]) -> list[str]:
    """What each piece lets through, and what the end does, up to the first stop string."""
    out = []
    for piece in pieces:
        out.append(stops.push(piece))
        if stops.found:
            return out
    return [*out, stops.flush()]


@pytest.mark.parametrize(
    ("stop", "pieces", "expected", "found"),
    [
        ((), ["a", "b"], ["a", "b", ""], False),
        (("DEFGHIJ",), ["DEF", "G", "HI", "J"], ["", "", "", ""], True),
        (("b,c",), ["a", ",", "b", "x"], ["a", ",", "", "bx", ""], False),
        (("</think>",), ["</thin", "k>", "more"], ["", ""], True),
        (("</think>",), ["</thin", "g>"], ["", "</thing>", ""], False),
        (("aab",), ["a", "a", "a", "b"], ["", "", "a", ""], True),
        (("abc", "bd"), ["xab", "d", "e"], ["x", "a"], True),
        (("later", "a"), ["the later"], ["the l"], True),
        (("\n\n",), ["one\n", "two\n", "\nthree"], ["one", "\ntwo", ""], True),
        (("stop",), ["it will st"], ["it will ", "st"], False),
    ],
)
def test_text_ends_before_the_first_stop_string(
    stop: tuple[str, ...], pieces: list[str], expected: list[str], found: bool
) -> None:
    stops = StopStrings(stop)

    assert run(stops, pieces) == expected
    assert stops.found is found


@given(
    pieces=st.lists(st.text("ab,", max_size=4), max_size=12),
    stop=st.lists(st.text("ab,", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple),
)
def test_cut_text_is_the_text_before_the_first_stop_string_in_it(pieces: list[str], stop: tuple[str, ...]) -> None:
    stops = StopStrings(stop)
    text = "".join(run(stops, pieces))
    whole = "".join(pieces)

    assert text == "".join(run(StopStrings(stop), list(whole)))
    assert whole.startswith(text)
    assert not any(each in text for each in stop)
    assert stops.found is any(each in whole for each in stop)
    if stops.found:
        assert any(whole.startswith(each, len(text)) for each in stop)
    else:
        assert text == whole
