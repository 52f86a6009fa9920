"""The answer to one call: what its choices gain as text, and how they end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jetway.runtime.errors import JetwayError
from jetway.v1 import common_pb2

from .generation import Generation
from .inbox import End, Gathered, Inbox
from .transcript import Piece, ScoredToken, Transcript
from .watch import Watch


@dataclass(frozen=True, slots=True)
class Usage:
    """Each prompt counts once, however many choices it has; `cached_tokens` is the part found in the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Span(NamedTuple):
    """When an answer was asked of the scheduler, how long it waited for its start, and when its end was heard; on the
    monotonic clock, seconds.
    """

    submitted_at: float
    queued_s: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How a choice ended; there is an `error` unless it ended as STOP or LENGTH."""

    finish_reason: common_pb2.FinishReason.ValueType
    error: JetwayError | None = None


class Delta(NamedTuple):
    """What a choice gained. The text may be empty; the choice's last delta has an ending, the answer's last one usage."""

    choice: int
    piece: Piece
    ending: Ending | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """All of a choice, which ended as STOP or LENGTH."""

    text: str
    token_ids: list[int]
    scored: Sequence[ScoredToken]
    finish_reason: common_pb2.FinishReason.ValueType


@dataclass(frozen=True, slots=True)
class Completion:
    choices: list[Choice]
    usage: Usage


class Answer:
    """Iterates over the accepted generations of one call, one a prompt, as deltas of their choices in turn.

    A step that is cancelled loses nothing.
    """

    def __init__(
        self,
        inbox: Inbox,
        generations: Sequence[Generation],
        transcripts: Sequence[Transcript],
        num_prompt_tokens: int,
        watch: Watch,
    ) -> None:
        self._inbox = inbox
        self._generations = generations
        self._transcripts = transcripts
        self._num_prompt_tokens = num_prompt_tokens
        self._watch = watch
        self._n = len(transcripts) // len(generations)
        self._num_open = len(transcripts)
        self._cached_tokens: dict[int, int] = {}  # by prompt
        self._ends: list[End] = []

    @property
    def num_choices(self) -> int:
        return len(self._transcripts)

    @property
    def num_prompt_tokens(self) -> int:
        return self._num_prompt_tokens

    @property
    def span(self) -> Span | None:
        """From the first of its sequences to the last. None while one is open, or where the scheduler has not said it."""
        queued_s = [end.queued_s for end in self._ends if end.queued_s is not None]
        if self._num_open or not queued_s:
            return None
        return Span(self._generations[0].submitted_at, min(queued_s), max(end.heard_at for end in self._ends))

    def cancel(self) -> None:
        """End all that is open, and hear nothing more of it."""
        for generation in self._generations:
            generation.cancel()

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> Delta:
        if not self._num_open:
            raise StopAsyncIteration
        return self._advance(await self._inbox.next())

    async def whole(self) -> Completion:
        """All of it. Raises the first error that a choice ended with."""
        deltas: list[list[Delta]] = [[] for _ in self._transcripts]
        async for delta in self:
            if delta.ending is not None and delta.ending.error is not None:
                raise delta.ending.error
            deltas[delta.choice].append(delta)
        assert delta.usage is not None, "an answer ends with its usage"
        return Completion([_joined(each) for each in deltas], delta.usage)

    def _advance(self, gathered: Gathered) -> Delta:
        choice = gathered.choice
        transcript = self._transcripts[choice]
        piece = transcript.take(gathered)
        if piece.token_ids:
            self._watch.gained(choice, len(piece.token_ids))
        if gathered.end is not None:
            return self._ended(choice, piece, gathered.end)
        if transcript.stopped:  # its end comes once the scheduler knows
            self._generations[choice // self._n].finish(choice, transcript.num_tokens)
        return Delta(choice, piece)

    def _ended(self, choice: int, piece: Piece, end: End) -> Delta:
        if self._transcripts[choice].stopped:  # whatever the scheduler had done by then
            ending = Ending(common_pb2.FINISH_REASON_STOP)
        else:
            ending = Ending(end.reason, end.error)
        self._num_open -= 1
        self._ends.append(end)
        self._watch.choice_ended(ending.finish_reason, ending.error)
        prompt = choice // self._n
        # The first of a prompt's choices to run finds what was cached before; the others find what it has computed.
        if (cached := end.num_cached_tokens) is not None:
            self._cached_tokens[prompt] = min(cached, self._cached_tokens.get(prompt, cached))
        return Delta(choice, piece, ending, None if self._num_open else self._usage())

    def _usage(self) -> Usage:
        completion_tokens = sum(transcript.num_tokens for transcript in self._transcripts)
        return Usage(self._num_prompt_tokens, completion_tokens, sum(self._cached_tokens.values()))


def _joined(deltas: Sequence[Delta]) -> Choice:
    last = deltas[-1].ending
    assert last is not None, "a choice ends with an ending"
    pieces = [delta.piece for delta in deltas]
    return Choice(
        "".join(piece.text for piece in pieces),
        [token for piece in pieces for token in piece.token_ids],
        [scored for piece in pieces for scored in piece.scored],
        last.finish_reason,
    )
