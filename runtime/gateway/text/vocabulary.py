"""The bytes that a token stands for, also where they are part of a character only."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_Rule = Callable[[str], str | bytes]


class Vocabulary:
    """What each token adds to the text, byte for byte.

    Where a decoder drops the space before the first word, or tidies spaces, the bytes still have it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # `str(decoder)` is not JSON, and the whole tokenizer as JSON takes a second where the vocabulary is large.
        decoder = {} if tokenizer.decoder is None else json.loads(tokenizer.decoder.__getstate__())
        self._rules = list(_rules(decoder))
        self._added = {token_id: token.content for token_id, token in tokenizer.get_added_tokens_decoder().items()}
        self._known: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """Empty for an id without a token: vocabularies are padded."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        if (content := self._added.get(token_id)) is not None:
            return content.encode()
        token: str | bytes = self._tokenizer.id_to_token(token_id) or ""
        for rule in self._rules:
            if isinstance(token, bytes):
                break
            token = rule(token)
        return token if isinstance(token, bytes) else token.encode()


def _rules(decoder: Mapping[str, Any]) -> Iterator[_Rule]:
    """What a decoder of `tokenizers` does to one token; what it does between tokens is left out."""
    match decoder:
        case {"type": "Sequence", "decoders": decoders}:
            for each in decoders:
                yield from _rules(each)
        case {"type": "ByteLevel"}:
            yield _byte_level
        case {"type": "ByteFallback"}:
            yield _byte_fallback
        case {"type": "Replace", "pattern": {"String": old}, "content": new}:
            yield lambda token: token.replace(old, new)
        case {"type": "Metaspace", "replacement": space}:
            yield lambda token: token.replace(space, " ")
        case {"type": "WordPiece", "prefix": prefix}:
            yield lambda token: token.removeprefix(prefix) if token.startswith(prefix) else f" {token}"
        case {"type": "BPEDecoder", "suffix": suffix}:
            yield lambda token: token.replace(suffix, " ")


def _byte_fallback(token: str) -> str | bytes:
    byte = _BYTE.fullmatch(token)
    return token if byte is None else bytes.fromhex(byte[1])


def _byte_level(token: str) -> str | bytes:
    """A character that is not of the alphabet can stand in an added token only: the token is its own text."""
    try:
        return bytes(_ALPHABET[char] for char in token)
    except KeyError:
        return token


def _alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: those that can be seen stand for themselves, the others are moved beyond them."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(0x100) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + place): byte for place, byte in enumerate(moved)}


_ALPHABET = _alphabet()
