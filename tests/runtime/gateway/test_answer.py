"""Tokens to deltas: stop strings, stop tokens, split characters, and independence from what gathered when."""

import pytest
from tokenizers import Tokenizer

from jetway.runtime.errors import EngineFailed
from jetway.runtime.gateway.answer import Answer, Completion, Delta, Outcome, Usage
from jetway.runtime.gateway.connection import Connection
from jetway.runtime.gateway.text.detokenizer import Detokenizer
from jetway.runtime.gateway.text.stops import StopStrings
from jetway.scheduler.request import Request, SamplingParams
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, STOP, accepted, sampled
from tests.support.tokenizers import EOS, byte_level, ids_of, words

FAILED = common_pb2.FINISH_REASON_FAILED
BYTES = byte_level()
LETTERS = words("?", *"abcdefgh", "</think", ">")


class Stream:
    """One answer whose tokens a test hands over frame by frame."""

    def __init__(self, tokenizer: Tokenizer, *stop: str) -> None:
        self.connection = Connection()
        generation = self.connection.add(Request(id="r", prompt=[1, 2, 3], sampling=SamplingParams()))
        self.connection.receive(accepted(1))
        self.answer = Answer(generation, 3, Detokenizer(tokenizer), StopStrings(stop))

    def say(self, tokens: list[int], reason: common_pb2.FinishReason.ValueType | None = None) -> None:
        self.connection.receive(sampled(1, tokens, reason))

    async def finish_sent(self) -> scheduler_pb2.Finish:
        outgoing = self.connection.outgoing()
        await anext(outgoing)
        return (await anext(outgoing)).finish


async def one_by_one(
    stream: Stream, frames: list[list[int]], reason: common_pb2.FinishReason.ValueType | None
) -> list[Delta]:
    """The delta of each frame, when each is looked at before the next; the end comes with the last."""
    deltas = []
    iterator = aiter(stream.answer)
    for number, tokens in enumerate(frames, start=1):
        stream.say(tokens, reason if number == len(frames) else None)
        deltas.append(await anext(iterator))
        if deltas[-1].outcome is not None:
            break
    return deltas


async def test_deltas_carry_text_tokens_and_at_the_end_the_outcome() -> None:
    a, b = ids_of(LETTERS, "a", "b")

    deltas = await one_by_one(Stream(LETTERS), [[a], [b, a]], LENGTH)

    assert deltas == [Delta("a", [a], None), Delta("ba", [b, a], Outcome(LENGTH, Usage(3, 3), None))]


async def test_token_that_ends_the_sequence_counts_but_has_no_text() -> None:
    a, b = ids_of(LETTERS, "a", "b")

    [delta] = await one_by_one(Stream(LETTERS), [[a, b]], STOP)

    assert delta == Delta("a", [a, b], Outcome(STOP, Usage(3, 2), None))


async def test_last_token_of_a_sequence_cut_by_length_has_text() -> None:
    a, b = ids_of(LETTERS, "a", "b")

    [delta] = await one_by_one(Stream(LETTERS), [[a, b]], LENGTH)

    assert delta.text == "ab"


@pytest.mark.parametrize("text", ["🙂🙂", "삼겹살", "ďá", "x\ufffd"])
async def test_split_characters_come_whole_however_tokens_gather(text: str) -> None:
    tokens = BYTES.encode(text, add_special_tokens=False).ids
    for size in range(1, len(tokens) + 1):
        frames = [tokens[start : start + size] for start in range(0, len(tokens), size)]

        deltas = await one_by_one(Stream(BYTES), frames, LENGTH)

        assert "".join(delta.text for delta in deltas) == text
        assert "\ufffd" not in deltas[0].text or text[0] == "\ufffd" or len(deltas) == 1


async def test_stop_string_over_several_tokens_ends_the_sequence() -> None:
    stream = Stream(LETTERS, "</think>")
    a, think, close = ids_of(LETTERS, "a", "</think", ">")

    deltas = await one_by_one(stream, [[a], [think], [close, a, a]], None)

    assert deltas == [
        Delta("a", [a], None),
        Delta("", [think], None),
        Delta("", [close], Outcome(STOP, Usage(3, 3), None)),
    ]
    assert await stream.finish_sent() == scheduler_pb2.Finish(handle=1, sequence_index=0, kept_tokens=3)


async def test_text_held_for_a_stop_string_comes_out_when_there_is_none() -> None:
    think, a = ids_of(LETTERS, "</think", "a")

    assert [delta.text for delta in await one_by_one(Stream(LETTERS, "</think>"), [[think], [a]], LENGTH)] == [
        "",
        "</thinka",
    ]
    assert [delta.text for delta in await one_by_one(Stream(LETTERS, "</think>"), [[think]], LENGTH)] == ["</think"]


async def test_stop_string_completed_by_the_last_piece_of_text_ends_as_stop() -> None:
    tokens = BYTES.encode("ab🙂", add_special_tokens=False).ids

    deltas = await one_by_one(Stream(BYTES, "b\ufffd"), [tokens[:-1]], LENGTH)

    assert deltas == [Delta("a", tokens[:-1], Outcome(STOP, Usage(3, 5), None))]


async def test_whole_answer_equals_the_deltas_together() -> None:
    stream = Stream(LETTERS, "dc")
    tokens = ids_of(LETTERS, *"abdcab")
    stream.say(tokens, LENGTH)

    assert await stream.answer.whole() == Completion("ab", tokens[:4], Outcome(STOP, Usage(3, 4), None))


async def test_end_token_of_the_model_leaves_no_text() -> None:
    stream = Stream(BYTES)
    tokens = ids_of(BYTES, "a", EOS)
    stream.say(tokens, STOP)

    assert await stream.answer.whole() == Completion("a", tokens, Outcome(STOP, Usage(3, 2), None))


async def test_failure_after_some_tokens_is_the_outcome_of_the_last_delta() -> None:
    stream = Stream(LETTERS, "bc")
    a, b = ids_of(LETTERS, "a", "b")
    stream.say([a, b], FAILED)

    [delta] = [delta async for delta in stream.answer]

    assert (delta.text, delta.token_ids) == ("ab", [a, b])
    assert delta.outcome is not None
    assert isinstance(delta.outcome.error, EngineFailed)


async def test_whole_answer_raises_the_error_that_it_ended_with() -> None:
    stream = Stream(LETTERS)
    stream.say([1], FAILED)

    with pytest.raises(EngineFailed):
        await stream.answer.whole()
