"""Every parameter of OpenAI's API and of the usual extensions reaches the scheduler as it was given."""

from typing import Any

import openai
import pytest
from google.protobuf.json_format import MessageToDict
from tokenizers import Tokenizer

from tests.support.fake_scheduler import LENGTH, FakeScheduler, answering

HELLO: Any = [{"role": "user", "content": "hello"}]
DEFAULTS = {
    "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0,
    "frequency_penalty": 0, "min_tokens": 0, "ignore_eos": False,
}  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.25, "presence_penalty": -1.5, "frequency_penalty": 1.5, "seed": 2**63,
    "logit_bias": {"7": -100, "8": 1.5},
    "extra_body": {
        "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.25, "min_tokens": 2, "ignore_eos": True,
        "stop_token_ids": [3, 5],
    },
}  # fmt: skip
EXPECTED = {
    "temperature": 0.5, "top_p": 0.25, "presence_penalty": -1.5, "frequency_penalty": 1.5, "seed": str(2**63),
    "logit_bias_tokens": [7, 8], "logit_bias_values": [-100, 1.5],
    "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.25, "min_tokens": 2, "ignore_eos": True,
    "stop_token_ids": [3, 5],
}  # fmt: skip


async def sampling_of(scheduler: FakeScheduler) -> dict[str, Any]:
    """What the scheduler was asked, field by field."""
    sampling: dict[str, Any] = MessageToDict((await scheduler.adds.get()).sampling, preserving_proto_field_name=True)
    return sampling


async def test_chat(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=LENGTH)

    await client.chat.completions.create(model="tiny", messages=HELLO, **EVERYTHING)

    assert await sampling_of(scheduler) == EXPECTED


async def test_completion(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=LENGTH)

    await client.completions.create(model="tiny", prompt="a", logprobs=3, **EVERYTHING)

    assert await sampling_of(scheduler) == EXPECTED | {"logprobs": 3}


async def test_what_is_not_given_has_its_default(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=LENGTH)

    await client.chat.completions.create(model="tiny", messages=HELLO)

    sampling = await sampling_of(scheduler)
    assert int(sampling.pop("seed")) >= 0
    assert sampling == DEFAULTS


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([{"role": "developer", "content": "be brief"}], "<|im_start|>system\nbe brief<|im_end|>\n"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            "<|im_start|>user\na\nb<|im_end|>\n",
        ),
        ([{"role": "user", "content": "a", "name": "ignored"}], "<|im_start|>user\na<|im_end|>\n"),
    ],
    ids=["developer", "parts", "name"],
)
async def test_messages_are_rendered(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer, messages: Any, prompt: str
) -> None:
    scheduler.script = answering([5], reason=LENGTH)

    await client.chat.completions.create(model="tiny", messages=messages)

    add = await scheduler.adds.get()
    expected = f"<s>{prompt}<|im_start|>assistant\n"
    assert list(add.prompt) == tokenizer.encode(expected, add_special_tokens=False).ids


@pytest.mark.parametrize("stop", ["b", ["x", "b"]])
async def test_stop_is_a_string_or_a_list(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer, stop: Any
) -> None:
    scheduler.script = answering(tokenizer.encode("abc", add_special_tokens=False).ids, reason=LENGTH)

    completion = await client.completions.create(model="tiny", prompt="hi", stop=stop)

    assert completion.choices[0].text == "a"
    assert completion.choices[0].finish_reason == "stop"
