"""The bytes of each token, whatever its family."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders

from jetway.runtime.gateway.text.vocabulary import Vocabulary
from tests.support.tokenizers import BOS, byte_level, ids_of, metaspace, wordpiece, words

BYTE_LEVEL, METASPACE = byte_level(), metaspace(strips=False)


def spelled(tokenizer: Tokenizer, *tokens: str) -> list[bytes]:
    vocabulary = Vocabulary(tokenizer)
    return [vocabulary.bytes_of(token_id) for token_id in ids_of(tokenizer, *tokens)]


def test_byte_level() -> None:
    assert spelled(BYTE_LEVEL, "a", "Ġ", "Ċ", "ð", BOS) == [b"a", b" ", b"\n", b"\xf0", b"<s>"]


def test_metaspace_with_byte_fallback() -> None:
    assert spelled(METASPACE, "▁the", "s", "▁", "<0xF0>", BOS) == [b" the", b"s", b" ", b"\xf0", b"<s>"]


def test_wordpiece() -> None:
    assert spelled(wordpiece(), "cat", "##s", "漢") == [b" cat", b"s", " 漢".encode()]


def test_decoder_of_metaspace() -> None:
    tokenizer = words("▁a", "b")
    tokenizer.decoder = decoders.Metaspace()

    assert spelled(tokenizer, "▁a", "b") == [b" a", b"b"]


def test_decoder_of_bpe_with_a_suffix() -> None:
    tokenizer = words("a</w>", "b")
    tokenizer.decoder = decoders.BPEDecoder("</w>")

    assert spelled(tokenizer, "a</w>", "b") == [b"a ", b"b"]


def test_no_decoder_and_an_id_without_a_token() -> None:
    tokenizer = words("a")
    tokenizer.decoder = None

    assert spelled(tokenizer, "a") == [b"a"]
    assert Vocabulary(tokenizer).bytes_of(99) == b""


def test_added_token_is_its_own_text() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens(["zwei Wörter"])

    assert spelled(tokenizer, "zwei Wörter") == ["zwei Wörter".encode()]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, METASPACE], ids=["byte level", "metaspace"])
@given(text=st.text(max_size=8))
def test_bytes_of_the_tokens_are_those_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text, add_special_tokens=False).ids
    vocabulary = Vocabulary(tokenizer)

    assert b"".join(map(vocabulary.bytes_of, tokens)).decode() == tokenizer.decode(tokens)
