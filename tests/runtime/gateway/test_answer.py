"""Tokens to deltas and whole answers: stop strings, stop tokens, split characters, choices."""

import pytest
from tokenizers import Tokenizer

from jetway.runtime.errors import EngineFailed
from jetway.runtime.gateway.answer import Answer, Choice, Completion, Delta, Ending, Usage
from jetway.runtime.gateway.inbox import Inbox
from jetway.runtime.gateway.live_requests import LiveRequests
from jetway.runtime.gateway.metrics.instruments import Metrics
from jetway.runtime.gateway.text.detokenizer import Detokenizer
from jetway.runtime.gateway.text.stops import StopStrings
from jetway.runtime.gateway.transcript import Piece, Transcript
from jetway.runtime.gateway.watch import Watch
from jetway.scheduler.request import Request, SamplingParams
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, STOP, accepted, cached, sampled
from tests.support.tokenizers import EOS, byte_level, ids_of, words

FAILED, CANCELLED = common_pb2.FINISH_REASON_FAILED, common_pb2.FINISH_REASON_CANCELLED
BYTES = byte_level()
LETTERS = words("?", *"abcdefgh", "</think", ">")


class Stream:
    """An answer whose tokens a test hands over frame by frame: prompts of 3 tokens each, `n` choices a prompt."""

    def __init__(self, tokenizer: Tokenizer, *stop: str, num_prompts: int = 1, n: int = 1) -> None:
        self.live = LiveRequests()
        self._outgoing = self.live.begin()
        request = Request(id="r", prompt=[1, 2, 3], sampling=SamplingParams(), n=n)
        inbox = Inbox(num_prompts)
        generations = self.live.add([request] * num_prompts, inbox)
        for handle in range(1, num_prompts + 1):
            self.live.receive(accepted(handle))
        transcripts = [Transcript(Detokenizer(tokenizer), StopStrings(stop)) for _ in range(num_prompts * n)]
        self.answer = Answer(inbox, generations, transcripts, 3 * num_prompts, Watch(Metrics(), "r"))

    def say(self, tokens: list[int], reason: common_pb2.FinishReason.ValueType | None = None, index: int = 0) -> None:
        self.live.receive(sampled(1, tokens, reason, index=index))

    async def finish_sent(self) -> scheduler_pb2.Finish:
        await anext(self._outgoing)
        return (await anext(self._outgoing)).finish


async def one_by_one(
    stream: Stream, frames: list[list[int]], reason: common_pb2.FinishReason.ValueType | None
) -> list[Delta]:
    """The delta of each frame, when each is looked at before the next; the end comes with the last.

    Once a stop string is found the scheduler's end comes at once, with the next delta.
    """
    deltas = []
    for number, tokens in enumerate(frames, start=1):
        stream.say(tokens, reason if number == len(frames) else None)
        deltas.append(await anext(stream.answer))
        if deltas[-1].ending is not None:
            return deltas
    stream.say([], STOP)
    return [*deltas, await anext(stream.answer)]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.piece.text for delta in deltas)


async def test_deltas_carry_text_tokens_and_at_the_end_the_outcome() -> None:
    a, b = ids_of(LETTERS, "a", "b")

    deltas = await one_by_one(Stream(LETTERS), [[a], [b, a]], LENGTH)

    assert deltas == [
        Delta(0, Piece("a", [a])),
        Delta(0, Piece("ba", [b, a]), Ending(LENGTH), Usage(3, 3, 0)),
    ]


async def test_token_that_ends_the_sequence_counts_but_has_no_text() -> None:
    a, b = ids_of(LETTERS, "a", "b")

    [delta] = await one_by_one(Stream(LETTERS), [[a, b]], STOP)

    assert delta == Delta(0, Piece("a", [a, b]), Ending(STOP), Usage(3, 2, 0))


async def test_last_token_of_a_sequence_cut_by_length_has_text() -> None:
    a, b = ids_of(LETTERS, "a", "b")

    [delta] = await one_by_one(Stream(LETTERS), [[a, b]], LENGTH)

    assert delta.piece.text == "ab"


@pytest.mark.parametrize("text", ["🙂🙂", "삼겹살", "ďá", "x\ufffd"])
async def test_split_characters_come_whole_however_tokens_gather(text: str) -> None:
    tokens = BYTES.encode(text, add_special_tokens=False).ids
    for size in range(1, len(tokens) + 1):
        frames = [tokens[start : start + size] for start in range(0, len(tokens), size)]

        deltas = await one_by_one(Stream(BYTES), frames, LENGTH)

        assert text_of(deltas) == text
        assert "\ufffd" not in deltas[0].piece.text or text[0] == "\ufffd" or len(deltas) == 1


async def test_stop_string_over_several_tokens_ends_the_sequence() -> None:
    stream = Stream(LETTERS, "</think>")
    a, think, close = ids_of(LETTERS, "a", "</think", ">")

    deltas = await one_by_one(stream, [[a], [think], [close, a, a]], None)

    assert deltas == [
        Delta(0, Piece("a", [a])),
        Delta(0, Piece("", [think])),
        Delta(0, Piece("", [close])),
        Delta(0, Piece("", []), Ending(STOP), Usage(3, 3, 0)),
    ]
    assert await stream.finish_sent() == scheduler_pb2.Finish(handle=1, sequence_index=0, kept_tokens=3)


async def test_text_held_for_a_stop_string_comes_out_when_there_is_none() -> None:
    think, a = ids_of(LETTERS, "</think", "a")

    followed = await one_by_one(Stream(LETTERS, "</think>"), [[think], [a]], LENGTH)
    cut = await one_by_one(Stream(LETTERS, "</think>"), [[think]], LENGTH)

    assert [delta.piece.text for delta in followed] == ["", "</thinka"]
    assert [delta.piece.text for delta in cut] == ["</think"]


async def test_stop_string_completed_by_the_last_piece_of_text_ends_as_stop() -> None:
    tokens = BYTES.encode("ab🙂", add_special_tokens=False).ids

    deltas = await one_by_one(Stream(BYTES, "b\ufffd"), [tokens[:-1]], LENGTH)

    assert deltas == [Delta(0, Piece("a", tokens[:-1]), Ending(STOP), Usage(3, 5, 0))]


async def test_stop_string_found_is_stop_however_the_scheduler_ended_meanwhile() -> None:
    stream = Stream(LETTERS, "b")
    a, b = ids_of(LETTERS, "a", "b")
    stream.say([a, b])
    assert await anext(stream.answer) == Delta(0, Piece("a", [a, b]))

    stream.say([a], FAILED)

    assert await anext(stream.answer) == Delta(0, Piece("", []), Ending(STOP), Usage(3, 2, 0))


async def test_whole_answer_equals_the_deltas_together() -> None:
    stream = Stream(LETTERS, "dc")
    tokens = ids_of(LETTERS, *"abdcab")
    stream.say(tokens, LENGTH)

    assert await stream.answer.whole() == Completion([Choice("ab", tokens[:4], [], STOP)], Usage(3, 4, 0))


async def test_end_token_of_the_model_leaves_no_text() -> None:
    stream = Stream(BYTES)
    tokens = ids_of(BYTES, "a", EOS)
    stream.say(tokens, STOP)

    assert await stream.answer.whole() == Completion([Choice("a", tokens, [], STOP)], Usage(3, 2, 0))


async def test_failure_after_some_tokens_is_the_ending_of_the_last_delta() -> None:
    stream = Stream(LETTERS, "bc")
    a, b = ids_of(LETTERS, "a", "b")
    stream.say([a, b], FAILED)

    [delta] = [delta async for delta in stream.answer]

    assert delta.piece == Piece("ab", [a, b])
    assert delta.ending is not None
    assert isinstance(delta.ending.error, EngineFailed)


async def test_whole_answer_raises_the_error_that_it_ended_with() -> None:
    stream = Stream(LETTERS, n=2)
    stream.say([1], FAILED, index=1)

    with pytest.raises(EngineFailed):
        await stream.answer.whole()


async def test_choices_interleave_and_the_last_to_end_has_the_usage() -> None:
    stream = Stream(LETTERS, "d", n=2)
    a, b, d = ids_of(LETTERS, "a", "b", "d")

    stream.say([a])
    stream.say([b], index=1)
    stream.say([a, d])
    deltas = [await anext(stream.answer), await anext(stream.answer)]
    stream.live.receive(cached(sampled(1, [a], LENGTH, index=1), 2))
    stream.live.receive(cached(sampled(1, [], STOP), 1))
    deltas += [delta async for delta in stream.answer]

    assert deltas == [
        Delta(0, Piece("aa", [a, a, d])),
        Delta(1, Piece("b", [b])),
        Delta(1, Piece("a", [a]), Ending(LENGTH)),
        # The prompt counts once, and of what its sequences found cached, what the first of them to run found.
        Delta(0, Piece("", []), Ending(STOP), Usage(prompt_tokens=3, completion_tokens=5, cached_tokens=1)),
    ]


async def test_choices_of_several_prompts_are_numbered_prompt_by_prompt() -> None:
    stream = Stream(LETTERS, num_prompts=2, n=2)
    letters = ids_of(LETTERS, *"abcd")
    for handle, index, letter in zip([1, 1, 2, 2], [0, 1, 0, 1], letters):
        stream.live.receive(cached(sampled(handle, [letter], LENGTH, index=index), handle))

    completion = await stream.answer.whole()

    assert [choice.text for choice in completion.choices] == ["a", "b", "c", "d"]
    assert completion.usage == Usage(prompt_tokens=6, completion_tokens=4, cached_tokens=3)
