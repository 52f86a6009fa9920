"""Log-probabilities as OpenAI's client reads them, whole and streamed, next to text that is held back or cut."""

import math
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, STOP, FakeScheduler, accepted, sampled, scored
from tests.support.tokenizers import EOS, ids_of

HELLO: Any = [{"role": "user", "content": "hello"}]


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def saying(tokens: list[int], reason: common_pb2.FinishReason.ValueType, *, chunk: int = 1) -> Any:
    """Tokens a few at a time; the token at place i has log-probability -i, and two alternatives of its own."""
    scores = [
        common_pb2.TokenLogprobs(logprob=-place, top_tokens=[token, place], top_logprobs=[-place, -place - 0.5])
        for place, token in enumerate(tokens)
    ]

    def script(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
        frames = [accepted(add.handle)]
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            frame = sampled(add.handle, part, reason if start + chunk >= len(tokens) else None)
            frames.append(scored(frame, scores[start : start + chunk]))
        return frames

    return script


async def test_chat(client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = saying(ids_of(tokenizer, "a", EOS), STOP)

    completion = await client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, top_logprobs=2)

    [choice] = completion.choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    first, last = choice.logprobs.content
    assert (first.token, first.bytes, first.logprob) == ("a", [97], 0)
    assert [(top.token, top.bytes, top.logprob) for top in first.top_logprobs] == [("a", [97], 0), ("!", [33], -0.5)]
    assert (last.token, last.bytes, last.logprob) == (EOS, list(EOS.encode()), -1)
    assert choice.message.content == "a"
    add = await scheduler.adds.get()
    assert add.sampling.logprobs == 2


async def test_bytes_are_those_of_the_token_where_it_is_part_of_a_character(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = saying(ids(tokenizer, "x🙂"), LENGTH)

    completion = await client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True)

    [choice] = completion.choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [entry.token for entry in choice.logprobs.content] == [
        "x", r"bytes:\xf0", r"bytes:\x9f", r"bytes:\x99", r"bytes:\x82",
    ]  # fmt: skip
    spelled = bytes(byte for entry in choice.logprobs.content for byte in entry.bytes or [])
    assert spelled.decode() == choice.message.content == "x🙂"


async def test_completion(client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = ids(tokenizer, "aďb")
    scheduler.script = saying(tokens, LENGTH)

    completion = await client.completions.create(model="tiny", prompt="hi", logprobs=2)

    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", r"bytes:\xc4", r"bytes:\x8f", "b"]
    assert logprobs.token_logprobs == [0, -1, -2, -3]
    assert logprobs.text_offset == [0, 1, 1, 2]
    assert logprobs.top_logprobs == [
        {"a": 0, "!": -0.5},
        {r"bytes:\xc4": -1, '"': -1.5},
        {r"bytes:\x8f": -2, "#": -2.5},
        {"b": -3, "$": -3.5},
    ]


async def test_token_itself_stands_beside_its_alternatives(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    [a, b] = ids(tokenizer, "ab")
    scores = [common_pb2.TokenLogprobs(logprob=-math.inf, top_tokens=[b], top_logprobs=[-0.125])]
    scheduler.script = lambda add: [accepted(add.handle), scored(sampled(add.handle, [a], LENGTH), scores)]

    completion = await client.completions.create(model="tiny", prompt="hi", logprobs=1)

    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs == [{"b": -0.125, "a": -9999.0}]  # JSON has no infinity


@pytest.mark.parametrize("chunk", [1, 2, 3, 20])
@pytest.mark.parametrize("stop", [None, "END", "🙂"])
async def test_chunks_of_a_stream_are_what_the_whole_is(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer, chunk: int, stop: str | None
) -> None:
    tokens = ids(tokenizer, "one EN🙂 END two")
    ask: Any = {"model": "tiny", "messages": HELLO, "logprobs": True, "top_logprobs": 1, "stop": stop}
    scheduler.script = saying(tokens, LENGTH, chunk=len(tokens))
    whole = (await client.chat.completions.create(**ask)).choices[0]
    scheduler.script = saying(tokens, LENGTH, chunk=chunk)

    chunks = [part.choices[0] async for part in await client.chat.completions.create(**ask, stream=True)]

    assert whole.logprobs is not None
    assert "".join(each.delta.content or "" for each in chunks) == whole.message.content
    entries = [entry for each in chunks if each.logprobs is not None for entry in each.logprobs.content or []]
    assert entries == whole.logprobs.content
    assert chunks[-1].finish_reason == whole.finish_reason


async def test_chunks_of_a_completion_are_what_the_whole_is(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = ids(tokenizer, "one EN🙂 END two")
    ask: Any = {"model": "tiny", "prompt": "hi", "logprobs": 1, "stop": "END"}
    scheduler.script = saying(tokens, LENGTH, chunk=len(tokens))
    whole = (await client.completions.create(**ask)).choices[0].logprobs
    scheduler.script = saying(tokens, LENGTH)

    parts = [part.choices[0].logprobs async for part in await client.completions.create(**ask, stream=True)]

    assert whole is not None
    for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [each for part in parts if part is not None for each in getattr(part, field)] == getattr(whole, field)
    assert len(whole.tokens or []) == len(ids(tokenizer, "one EN🙂 END"))
