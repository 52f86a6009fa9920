"""What strangers send, where it is repeated."""

import pytest

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.words import cut, plain, quoted


def test_long_words_end_in_an_ellipsis() -> None:
    assert cut("a" * 80) == "a" * 80
    assert cut("a" * 81) == "a" * 80 + "…"
    assert quoted("it's") == '"it\'s"'
    assert quoted("b" * 1_000_000) == "'" + "b" * 79 + "…"


@pytest.mark.parametrize("name", ["a", "x" * 128, "req-1/2#3"])
def test_plain_names_pass(name: str) -> None:
    assert plain(name, "request_id") == name


@pytest.mark.parametrize("name", ["", "x" * 129, "two words", "line\nbreak", "é"])
def test_other_names_are_refused_with_the_limit(name: str) -> None:
    with pytest.raises(InvalidArgument, match="request_id must have 1 to 128 visible ASCII characters") as caught:
        plain(name, "request_id")
    assert caught.value.param == "request_id"
