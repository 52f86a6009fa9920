"""Several choices and several prompts in one call, as OpenAI's client sees them."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, cached, refused, sampled

HELLO: Any = [{"role": "user", "content": "hello"}]


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def choosing(tokenizer: Tokenizer, *texts: str) -> Callable[[scheduler_pb2.Add], list[scheduler_pb2.SessionFrame]]:
    """Each choice says its text, all in turn one byte at a time; a request takes its n texts from the front."""
    waiting = list(texts)

    def script(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
        mine = [ids(tokenizer, waiting.pop(0)) for _ in range(add.n)]
        frames = [accepted(add.handle)]
        for place in range(max(map(len, mine))):
            for index, tokens in enumerate(mine):
                if place < len(tokens):
                    reason = LENGTH if place == len(tokens) - 1 else None
                    frames.append(cached(sampled(add.handle, [tokens[place]], reason, index=index), 2 + index))
        return frames

    return script


async def test_choices_of_a_chat(client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = choosing(tokenizer, "one", "🙂!two")

    completion = await client.chat.completions.create(model="tiny", messages=HELLO, n=2, stop="!")

    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in completion.choices] == [
        (0, "one", "length"),
        (1, "🙂", "stop"),
    ]
    usage = completion.usage
    assert usage is not None
    prompt = ids(tokenizer, "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt), 3 + 5)
    assert (await scheduler.adds.get()).n == 2


async def test_choices_of_a_stream_interleave_by_index(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    texts = ["one", "🙂", "three"]
    scheduler.script = choosing(tokenizer, *texts)

    stream = await client.chat.completions.create(
        model="tiny", messages=HELLO, n=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    *with_choice, last = chunks
    choices = [choice for chunk in with_choice for choice in chunk.choices]
    for index, text in enumerate(texts):
        mine = [choice for choice in choices if choice.index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in mine) == text
        assert [choice.finish_reason for choice in mine] == [None] * (len(mine) - 1) + ["length"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 3 + 4 + 5
    details = last.usage.prompt_tokens_details
    assert details is not None
    assert details.cached_tokens == 2


@pytest.mark.parametrize("prompts", [["a", "bc"], [[3, 4], [5, 6, 7]]], ids=["texts", "token ids"])
async def test_choices_of_several_prompts_stand_prompt_by_prompt(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer, prompts: Any
) -> None:
    scheduler.script = choosing(tokenizer, "one", "two", "three", "four")

    completion = await client.completions.create(model="tiny", prompt=prompts, n=2)

    assert [(choice.index, choice.text) for choice in completion.choices] == [
        (0, "one"),
        (1, "two"),
        (2, "three"),
        (3, "four"),
    ]
    first, second = await scheduler.adds.get(), await scheduler.adds.get()
    expected = [tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt for prompt in prompts]
    assert [list(first.prompt), list(second.prompt)] == expected
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (sum(map(len, expected)), 3 + 3 + 5 + 4)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 2 * 2


async def test_seed_is_everybodys_when_given_and_else_each_prompts_own(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = choosing(tokenizer, *["a"] * 4)

    await client.completions.create(model="tiny", prompt=["a", "a"], seed=3)
    await client.completions.create(model="tiny", prompt=["a", "a"])

    seeds = [(await scheduler.adds.get()).sampling.seed for _ in range(4)]
    assert seeds[:2] == [3, 3]
    assert seeds[2] != seeds[3]


async def test_refusal_of_one_prompt_refuses_the_call(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> None:
    too_long = common_pb2.Error(code=common_pb2.ERROR_CODE_INVALID_ARGUMENT, message="too long", param="prompt")
    scheduler.script = lambda add: [refused(add.handle, too_long) if add.handle == 2 else accepted(add.handle)]

    with pytest.raises(openai.BadRequestError, match="too long"):
        await client.completions.create(model="tiny", prompt=["a", "b"])
    assert await scheduler.cancels.get() == 1


async def test_failure_of_one_choice_ends_the_stream(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    [a] = ids(tokenizer, "a")
    scheduler.script = lambda add: [
        accepted(add.handle),
        sampled(add.handle, [a], common_pb2.FINISH_REASON_FAILED, index=1),
    ]

    stream = await client.completions.create(model="tiny", prompt="a", n=2, stream=True)

    with pytest.raises(openai.APIError, match="the engine failed"):
        _ = [chunk async for chunk in stream]
    assert await scheduler.cancels.get() == 1
