"""Token ids to text as they come, without breaking characters."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """Incremental decoding of one sequence: what `push` and `flush` return concatenates to `decode` of all its tokens.

    `anchor` is a token that stands before the sequence: without one, some decoders drop the first word's space.
    Special tokens have no text. A piece may be empty: a token can end inside a character.
    """

    def __init__(self, tokenizer: Tokenizer, anchor: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._tokens = [] if anchor is None else [anchor]
        self._stream: DecodeStream | None = DecodeStream(ids=list(self._tokens), skip_special_tokens=True)
        self._anchor_chars = len(self._decode())
        self.num_chars = 0  # that are out

    def push(self, tokens: Sequence[int]) -> list[str]:
        """What each of them adds."""
        self._tokens += tokens
        pieces = [self._step(token) for token in tokens]
        self.num_chars += sum(map(len, pieces))
        return pieces

    def _step(self, token: int) -> str:
        if self._stream is None:
            return ""
        try:
            return self._stream.step(self._tokenizer, token) or ""
        except Exception as error:  # `tokenizers` raises no class of its own
            if "Invalid prefix" not in str(error):
                raise
            # This tokenizer's decoder rewrites text that is already out. What follows is known only from the whole,
            # which `flush` returns.
            self._stream = None
            return ""

    def flush(self) -> str:
        """The rest, once no more tokens come: a last character that never became whole is U+FFFD."""
        rest = self._decode()[self._anchor_chars + self.num_chars :]
        self.num_chars += len(rest)
        return rest

    def _decode(self) -> str:
        return self._tokenizer.decode(self._tokens, skip_special_tokens=True)
