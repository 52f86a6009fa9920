"""Token ids to text, one at a time, without breaking characters."""

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """Incremental decoding of one sequence: what `push` and `flush` return concatenates to `decode` of all its tokens.

    Special tokens have no text. A piece may be empty: a token can end inside a character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream: DecodeStream | None = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._num_chars = 0

    def push(self, token: int) -> str:
        self._tokens.append(token)
        if self._stream is None:
            return ""
        try:
            piece = self._stream.step(self._tokenizer, token) or ""
        except Exception as error:  # `tokenizers` raises no class of its own
            if "Invalid prefix" not in str(error):
                raise
            # This tokenizer's decoder rewrites text that is already out. What follows is known only from the whole,
            # which `flush` returns.
            self._stream = None
            return ""
        self._num_chars += len(piece)
        return piece

    def flush(self) -> str:
        """The rest, once no more tokens come: a last character that never became whole is U+FFFD."""
        text = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        return text[self._num_chars :]
