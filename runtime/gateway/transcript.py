"""One choice as text: its tokens, detokenized and cut at the first stop string."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from jetway.v1 import common_pb2

from .inbox import Gathered
from .text.detokenizer import Detokenizer
from .text.stops import StopStrings


class ScoredToken(NamedTuple):
    """A token with its log-probabilities. Its text begins at `text_offset` characters of the choice's, stop string
    and all; a token inside a character begins where the character does.
    """

    token_id: int
    scores: common_pb2.TokenLogprobs
    text_offset: int


class Piece(NamedTuple):
    """What tokens gave: those that count, and the text that is now certain to stay."""

    text: str
    token_ids: list[int]
    scored: Sequence[ScoredToken] = ()  # parallel to `token_ids`, where the call asked


class Transcript:
    """Takes a choice's tokens as they come; `stopped` once a stop string is complete, and then it takes no more.

    The token that completes a stop string is the last that counts. The text never depends on what gathered when.
    """

    def __init__(self, detokenizer: Detokenizer, stops: StopStrings) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self.num_tokens = 0

    @property
    def stopped(self) -> bool:
        return self._stops.found

    def take(self, gathered: Gathered) -> Piece:
        """The next tokens; with the choice's end also the text that was held back."""
        tokens, end = gathered.tokens, gathered.end
        offset = self._detokenizer.num_chars
        # The token that ended the choice has no text.
        ended_by_token = end is not None and end.reason == common_pb2.FINISH_REASON_STOP
        pieces = self._detokenizer.push(tokens[:-1] if ended_by_token else tokens)
        text = ""
        for position, piece in enumerate(pieces):
            text += self._stops.push(piece)
            if self._stops.found:
                tokens = tokens[: position + 1]
                break
        if end is not None and not self._stops.found:
            text += self._stops.push(self._detokenizer.flush())
            text += self._stops.flush()
        self.num_tokens += len(tokens)
        if not gathered.logprobs:
            return Piece(text, tokens)
        offsets = accumulate(map(len, pieces), initial=offset)
        return Piece(text, tokens, [ScoredToken(*each) for each in zip(tokens, gathered.logprobs, offsets)])
