"""Text never depends on how tokens were gathered: any tokenizer, any script, any cut, with and without stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from jetway.runtime.gateway.inbox import End, Gathered
from jetway.runtime.gateway.text.detokenizer import Detokenizer
from jetway.runtime.gateway.text.stops import StopStrings
from jetway.runtime.gateway.transcript import Piece, ScoredToken, Transcript
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH
from tests.support.tokenizers import byte_level, ids_of, metaspace, wordpiece, words

TOKENIZERS = {
    "byte level": byte_level(),
    "metaspace": metaspace(),
    "metaspace that strips nothing": metaspace(strips=False),
    "wordpiece": wordpiece(),
}
# Letters, a combining accent, emoji with joiner, skin tone and variation selector, CJK, Hangul, right to left, controls.
ALPHABET = "ab e\u0301🙂👩\u200d🏽\ufe0f漢字가각אבس\u200f\n\ufffd"
TEXTS = st.text(st.sampled_from(ALPHABET), max_size=12)
CUTS = st.lists(st.integers(1, 5), max_size=8)
STOPS = st.lists(st.text(st.sampled_from(ALPHABET), min_size=1, max_size=4), max_size=3)


def pieces(tokenizer: Tokenizer, tokens: list[int], stops: tuple[str, ...], sizes: list[int]) -> list[Piece]:
    """What a choice gives whose tokens come in chunks of these sizes, then one by one; its end comes by length."""
    transcript = Transcript(Detokenizer(tokenizer), StopStrings(stops))
    scores = scored(tokens)
    sizes = list(sizes)
    out = []
    place = 0
    while place < len(tokens) and not transcript.stopped:
        chunk = slice(place, place + (sizes.pop() if sizes else 1))
        out.append(transcript.take(Gathered(0, tokens[chunk], scores[chunk])))
        place = chunk.stop
    return out if transcript.stopped else [*out, transcript.take(Gathered(0, end=End(LENGTH)))]


def scored(tokens: list[int]) -> list[common_pb2.TokenLogprobs]:
    """Different for each place."""
    return [common_pb2.TokenLogprobs(logprob=-place, top_tokens=[token]) for place, token in enumerate(tokens)]


def told(tokenizer: Tokenizer, tokens: list[int], stops: tuple[str, ...], sizes: list[int]) -> str:
    return "".join(piece.text for piece in pieces(tokenizer, tokens, stops, sizes))


def before_first_stop(text: str, stops: tuple[str, ...]) -> str:
    """Up to the stop string that is complete first; of several that end there, the longest."""
    for end in range(len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)]
    return text


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS, sizes=CUTS)
def test_deltas_together_are_the_whole_decoded(name: str, text: str, sizes: list[int]) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode(text, add_special_tokens=False).ids

    assert told(tokenizer, tokens, (), sizes) == tokenizer.decode(tokens)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS, sizes=CUTS, stops=STOPS)
def test_stop_strings_cut_the_same_text_at_any_split(name: str, text: str, sizes: list[int], stops: list[str]) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode(text, add_special_tokens=False).ids

    assert told(tokenizer, tokens, tuple(stops), sizes) == before_first_stop(tokenizer.decode(tokens), tuple(stops))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS, sizes=CUTS, stops=STOPS)
def test_tokens_and_log_probabilities_are_the_same_at_any_split(
    name: str, text: str, sizes: list[int], stops: list[str]
) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode(text, add_special_tokens=False).ids

    whole = pieces(tokenizer, tokens, tuple(stops), [len(tokens) or 1])
    chunks = pieces(tokenizer, tokens, tuple(stops), sizes)

    assert [each for piece in chunks for each in piece.scored] == [each for piece in whole for each in piece.scored]
    for piece in chunks:
        assert [each.token_id for each in piece.scored] == piece.token_ids


def test_log_probabilities_stay_with_their_tokens_while_text_is_held_back() -> None:
    tokenizer = words("?", "a", "</think", ">")
    a, think, close = ids_of(tokenizer, "a", "</think", ">")
    first, second, third, _ = scored([a, think, close, a])
    transcript = Transcript(Detokenizer(tokenizer), StopStrings(("</think>",)))

    assert transcript.take(Gathered(0, [a], [first])) == Piece("a", [a], [ScoredToken(a, first, 0)])
    assert transcript.take(Gathered(0, [think], [second])) == Piece("", [think], [ScoredToken(think, second, 1)])
    assert transcript.take(Gathered(0, [close, a], [third, first])) == Piece(
        "", [close], [ScoredToken(close, third, 8)]
    )


def test_text_offset_of_a_token_inside_a_character_is_where_the_character_begins() -> None:
    tokenizer = TOKENIZERS["byte level"]
    tokens = tokenizer.encode("aďá", add_special_tokens=False).ids

    [piece, _] = pieces(tokenizer, tokens, (), [len(tokens)])

    assert [each.text_offset for each in piece.scored] == [0, 1, 1, 2, 2]


def test_token_that_ended_the_choice_has_no_text_wherever_it_comes() -> None:
    tokenizer = TOKENIZERS["byte level"]
    tokens = tokenizer.encode("ab", add_special_tokens=False).ids
    stop = End(common_pb2.FINISH_REASON_STOP)

    together = Transcript(Detokenizer(tokenizer), StopStrings(())).take(Gathered(0, tokens, end=stop))

    assert (together.text, together.token_ids) == ("a", tokens)
