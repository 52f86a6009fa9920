"""Incremental decoding equals decoding at once, whatever the tokenizer and wherever characters are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders

from jetway.runtime.gateway.text.detokenizer import Detokenizer
from tests.support.tokenizers import EOS, byte_level, ids_of, metaspace, wordpiece, words

BYTE_LEVEL, METASPACE, WORDPIECE = byte_level(), metaspace(), wordpiece()


def pieces(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(piece for token in tokens for piece in detokenizer.push([token])), detokenizer.flush()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("🙂🙂", ["", "", "", "🙂", "", "", "", "🙂", ""]),
        ("삼겹살", ["", "", "삼", "", "", "겹", "", "", "살", ""]),
        ("ďá", ["", "ď", "", "á", ""]),
        ("a\ufffdb", ["a", "", "", "", "\ufffdb", ""]),
        ("end\ufffd", ["e", "n", "d", "", "", "", "\ufffd"]),
    ],
)
def test_characters_of_several_tokens_come_whole(text: str, expected: list[str]) -> None:
    tokens = BYTE_LEVEL.encode(text, add_special_tokens=False).ids

    assert pieces(BYTE_LEVEL, tokens) == expected


def test_character_cut_off_by_the_end_is_one_replacement_character() -> None:
    tokens = BYTE_LEVEL.encode("a🙂", add_special_tokens=False).ids

    assert pieces(BYTE_LEVEL, tokens[:-1]) == ["a", "", "", "", "\ufffd"]


def test_special_tokens_have_no_text() -> None:
    assert pieces(BYTE_LEVEL, ids_of(BYTE_LEVEL, "a", EOS, "a")) == ["a", "", "a", ""]


def test_words_of_sentencepiece_keep_their_spaces() -> None:
    tokens = ids_of(METASPACE, "▁the", "▁cat", "s", "▁the")

    assert pieces(METASPACE, tokens) == ["the", " cat", "s", " the", ""]


def test_bytes_of_sentencepiece_join_into_a_character() -> None:
    tokens = ids_of(METASPACE, *(f"<0x{byte:02X}>" for byte in "🙂".encode()))

    assert pieces(METASPACE, tokens) == ["", "", "", "🙂", ""]


def test_pieces_of_wordpiece_join_into_words() -> None:
    tokens = ids_of(WORDPIECE, "the", "cat", "##s", "do", "not", ".")

    assert pieces(WORDPIECE, tokens) == ["the", " cat", "s", " do", " not", ".", ""]


def test_decoder_that_rewrites_its_text_gives_the_rest_at_the_end() -> None:
    tokenizer = words("a", "b", "c", "d")
    tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace("bc", "X")])

    assert pieces(tokenizer, [0, 1, 2, 3]) == ["a", "b", "", "", "d"]


@given(tokens=st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1), max_size=24))
def test_pieces_of_any_bytes_concatenate_to_the_whole(tokens: list[int]) -> None:
    assert "".join(pieces(BYTE_LEVEL, tokens)) == BYTE_LEVEL.decode(tokens)


# Not any bytes: a run of byte tokens with one wrong byte decodes to nothing but U+FFFD, also where it was right.
@given(text=st.text(max_size=8))
def test_pieces_of_any_text_concatenate_to_the_whole(text: str) -> None:
    tokens = METASPACE.encode(text, add_special_tokens=False).ids

    assert "".join(pieces(METASPACE, tokens)) == METASPACE.decode(tokens)


@given(tokens=st.lists(st.integers(0, WORDPIECE.get_vocab_size() - 1), max_size=12))
def test_pieces_of_any_words_concatenate_to_the_whole(tokens: list[int]) -> None:
    assert "".join(pieces(WORDPIECE, tokens)) == WORDPIECE.decode(tokens)
