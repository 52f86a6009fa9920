"""Request bodies to calls."""

from typing import Any

import pytest

from jetway.runtime.gateway.call import Call, Chat, Message
from jetway.runtime.gateway.openai.parse import HttpCall
from jetway.scheduler.request import SamplingParams
from tests.support.bodies import chat, completion


def test_every_parameter_reaches_the_call() -> None:
    parsed = chat(
        model="m",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c", "tool_calls": None, "name": "x"},
        ],
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=4,
        min_p=0.1,
        repetition_penalty=1.5,
        presence_penalty=-1,
        frequency_penalty=2,
        logit_bias={"7": -100, "8": 1.5},
        stop=["x", "y"],
        stop_token_ids=[3],
        min_tokens=2,
        ignore_eos=True,
        seed=9,
        n=3,
        logprobs=True,
        top_logprobs=20,
        user="ignored",
        metadata={"also": "ignored"},
    )

    assert parsed == HttpCall(
        Call(
            request_id="id",
            model="m",
            prompts=(Chat((Message("system", "be brief"), Message("user", "a\nb"), Message("assistant", "c"))),),
            sampling=SamplingParams(
                temperature=0.0,
                top_k=4,
                top_p=0.5,
                min_p=0.1,
                repetition_penalty=1.5,
                presence_penalty=-1.0,
                frequency_penalty=2.0,
                logit_bias=((7, -100.0), (8, 1.5)),
                stop_token_ids=(3,),
                min_tokens=2,
                ignore_eos=True,
                logprobs=20,
            ),
            seed=9,
            n=3,
            max_tokens=5,
            stop=("x", "y"),
        ),
        stream=True,
        include_usage=True,
    )


def test_absent_and_null_are_the_defaults() -> None:
    names = (
        "model",
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "stop",
        "logit_bias",
        "seed",
        "tools",
        "n",
    )
    call = Call(
        request_id="id", model=None, prompts=(Chat((Message("user", "hello"),)),), sampling=SamplingParams()
    )  # fmt: skip

    for parsed in (chat(), chat(**dict.fromkeys(names))):
        assert parsed == HttpCall(call, stream=False, include_usage=False)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        ("", ("",)),
    ],
)
def test_prompt_is_text_or_token_ids_or_several_of_either(prompt: Any, expected: tuple[Any, ...]) -> None:
    assert completion(prompt=prompt).call.prompts == expected


def test_logprobs_of_a_completion_are_a_count() -> None:
    assert completion().call.sampling.logprobs is None
    assert completion(logprobs=0).call.sampling.logprobs == 0
    assert completion(logprobs=5).call.sampling.logprobs == 5


def test_logprobs_of_a_chat_are_on_or_off() -> None:
    assert chat().call.sampling.logprobs is None
    assert chat(logprobs=False).call.sampling.logprobs is None
    assert chat(logprobs=True).call.sampling.logprobs == 0
    assert chat(logprobs=True, top_logprobs=5).call.sampling.logprobs == 5


@pytest.mark.parametrize("top_k", [-1, 0])
def test_all_tokens_have_two_names(top_k: int) -> None:
    assert chat(top_k=top_k).call.sampling.top_k == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [({}, 16), ({"max_tokens": 3}, 3), ({"max_tokens": None}, 16)],
    ids=["absent", "given", "null"],
)
def test_completion_is_as_long_as_the_openai_api_makes_it(body: dict[str, Any], expected: int) -> None:
    assert completion(**body).call.max_tokens == expected


def test_older_name_of_max_tokens_is_read_and_may_repeat_the_newer() -> None:
    assert chat(max_tokens=3).call.max_tokens == 3
    assert chat(max_tokens=3, max_completion_tokens=3).call.max_tokens == 3


def test_one_stop_string_needs_no_list() -> None:
    assert chat(stop="x").call.stop == ("x",)
