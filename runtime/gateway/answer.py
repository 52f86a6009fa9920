"""One answer as text: what a generation gains, detokenized and cut at the first stop string."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from jetway.runtime.errors import JetwayError
from jetway.v1 import common_pb2

from .generation import End, Generation
from .text.detokenizer import Detokenizer
from .text.stops import StopStrings


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an answer ended; there is an `error` unless it ended as STOP or LENGTH."""

    finish_reason: common_pb2.FinishReason.ValueType
    usage: Usage
    error: JetwayError | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What an answer gained. The text may be empty; the last delta, and only that, has an outcome."""

    text: str
    token_ids: list[int]
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer, which ended as STOP or LENGTH."""

    text: str
    token_ids: list[int]
    outcome: Outcome


class Answer:
    """Iterates over an accepted generation of one sequence as deltas, whatever has gathered as one.

    The token that completes a stop string is the last that counts. The text never depends on what gathered when.
    """

    def __init__(
        self, generation: Generation, num_prompt_tokens: int, detokenizer: Detokenizer, stops: StopStrings
    ) -> None:
        self._generation = generation
        self._num_prompt_tokens = num_prompt_tokens
        self._num_tokens = 0
        self._detokenizer = detokenizer
        self._stops = stops

    async def __aiter__(self) -> AsyncIterator[Delta]:
        async for gathered in self._generation:
            delta = self._advance(gathered.tokens, gathered.end)
            yield delta
            if delta.outcome is not None:
                return

    async def whole(self) -> Completion:
        """All of it. Raises the error that it ended with."""
        text: list[str] = []
        token_ids: list[int] = []
        async for delta in self:
            text.append(delta.text)
            token_ids += delta.token_ids
        assert delta.outcome is not None, "a generation ends with an end"
        if delta.outcome.error is not None:
            raise delta.outcome.error
        return Completion("".join(text), token_ids, delta.outcome)

    def _advance(self, tokens: list[int], end: End | None) -> Delta:
        text: list[str] = []
        for position, token in enumerate(tokens, start=1):
            if position == len(tokens) and end is not None and end.reason == common_pb2.FINISH_REASON_STOP:
                break  # the token that ended the sequence has no text
            text.append(self._stops.push(self._detokenizer.push(token)))
            if self._stops.found:
                self._generation.finish(0, self._num_tokens + position)
                return self._delta(text, tokens[:position], End(common_pb2.FINISH_REASON_STOP))
        if end is not None:
            text.append(self._stops.push(self._detokenizer.flush()))
            if self._stops.found:
                end = End(common_pb2.FINISH_REASON_STOP)
            text.append(self._stops.flush())
        return self._delta(text, tokens, end)

    def _delta(self, text: list[str], tokens: list[int], end: End | None) -> Delta:
        self._num_tokens += len(tokens)
        if end is None:
            return Delta("".join(text), tokens, None)
        usage = Usage(self._num_prompt_tokens, self._num_tokens)
        return Delta("".join(text), tokens, Outcome(end.reason, usage, end.error))
