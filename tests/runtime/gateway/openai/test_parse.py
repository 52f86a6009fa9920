"""Request bodies: what is read, and that whatever is wrong is refused by name, with limit and value."""

import json
from typing import Any

import pytest

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.call import Call, Chat, Message
from jetway.runtime.gateway.openai.fields import Fields
from jetway.runtime.gateway.openai.parse import HttpCall, parse_chat, parse_completion
from jetway.scheduler.request import SamplingParams

HELLO = [{"role": "user", "content": "hello"}]


def chat(**body: Any) -> HttpCall:
    return parse_chat(Fields.read(json.dumps({"messages": HELLO, **body}).encode()), "id")


def completion(**body: Any) -> HttpCall:
    return parse_completion(Fields.read(json.dumps({"prompt": "hello", **body}).encode()), "id")


def refusal(**body: Any) -> tuple[str | None, str]:
    """The field that is refused, and the message."""
    with pytest.raises(InvalidArgument) as caught:
        chat(**body)
    return caught.value.param, caught.value.message


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
        user="ignored",
        metadata={"also": "ignored"},
    )

    assert parsed == HttpCall(
        Call(
            request_id="id",
            model="m",
            prompt=Chat((Message("system", "be brief"), Message("user", "a\nb"), Message("assistant", "c"))),
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
                seed=9,
            ),
            max_tokens=5,
            stop=("x", "y"),
        ),
        stream=True,
        include_usage=True,
    )


def test_absent_and_null_are_the_defaults_and_the_seed_is_drawn() -> None:
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
    first, second = chat(), chat(**dict.fromkeys(names))

    assert first.call.sampling.seed != second.call.sampling.seed
    for parsed in (first, second):
        sampling = SamplingParams(seed=parsed.call.sampling.seed)
        call = Call(request_id="id", model=None, prompt=Chat((Message("user", "hello"),)), sampling=sampling)
        assert parsed == HttpCall(call, stream=False, include_usage=False)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", "a"), (["a"], "a"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ("", ""), ([], ())],
)
def test_prompt_is_text_or_token_ids(prompt: Any, expected: str | tuple[int, ...]) -> None:
    assert completion(prompt=prompt).call.prompt == expected


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


@pytest.mark.parametrize(
    "body",
    [
        {"n": 1},
        {"tools": []},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"logprobs": False},
        {"top_logprobs": 0},
        {"best_of": 1},
        {"echo": False},
        {"modalities": ["text"]},
    ],
    ids=lambda body: next(iter(body)),
)
def test_unsupported_field_that_asks_for_nothing_is_fine(body: dict[str, Any]) -> None:
    chat(**body)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 2),
        ("n", True),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("response_format", {"type": "json_object"}),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("best_of", 2),
        ("echo", True),
        ("suffix", "x"),
        ("logprobs", True),
        ("logprobs", 0),
        ("top_logprobs", 3),
        ("reasoning_effort", "high"),
        ("guided_json", {}),
        ("chat_template", "x"),
    ],
)
def test_unsupported_field_is_refused_by_name_and_value(param: str, value: Any) -> None:
    refused, message = refusal(**{param: value})

    assert refused == param
    assert message.startswith(f"{param} {json.dumps(value)} is not supported here; leave it out")


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"messages": []}, "messages", "messages is empty; at least 1 message is needed"),
        ({"messages": None}, "messages", "messages is missing; at least 1 message is needed"),
        ({"messages": "hi"}, "messages", 'messages must be a list, not "hi"'),
        ({"messages": ["hi"]}, "messages[0]", 'messages[0] must be an object, not "hi"'),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "messages[0].role is missing; it must be a string"),
        (
            {"messages": [{"role": "tool", "content": "a"}]},
            "messages[0].role",
            "messages[0].role must be one of system, developer, user, assistant, not 'tool'",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0].content is missing; it must be a string"),
        (
            {"messages": [*HELLO, {"role": "user", "content": 5}]},
            "messages[1].content",
            "messages[1].content must be a string, not 5",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
            'messages[0].content[0] must be a part of type "text", not {"type": "image_url", "image_url": {"url": "x"}}',
        ),
        (
            {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls",
            "messages[0].tool_calls is not supported here; leave it out",
        ),
        ({"model": 5}, "model", "model must be a string, not 5"),
        ({"stream": 1}, "stream", "stream must be a boolean, not 1"),
        ({"stream_options": {}}, "stream_options", "stream_options is allowed only with stream: true"),
        (
            {"stream": True, "stream_options": {"include_usage": "yes"}},
            "stream_options.include_usage",
            'stream_options.include_usage must be a boolean, not "yes"',
        ),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be in [1, 2147483647], not 0"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "max_completion_tokens must be in [1, 2147483647], not -1"),
        ({"max_tokens": True}, "max_tokens", "max_tokens must be an integer, not true"),
        ({"max_tokens": 5.0}, "max_tokens", "max_tokens must be an integer, not 5.0"),
        ({"max_tokens": 1 << 40}, "max_tokens", "max_tokens must be in [1, 2147483647], not 1099511627776"),
        (
            {"max_tokens": 1, "max_completion_tokens": 2},
            "max_completion_tokens",
            "max_completion_tokens is 2 and max_tokens, its older name, is 1; send one of them",
        ),
        ({"temperature": -0.1}, "temperature", "temperature must be in [0.0, 100.0], not -0.1"),
        ({"temperature": 101}, "temperature", "temperature must be in [0.0, 100.0], not 101.0"),
        ({"temperature": "hot"}, "temperature", 'temperature must be a number, not "hot"'),
        ({"temperature": True}, "temperature", "temperature must be a number, not true"),
        ({"top_p": 0}, "top_p", "top_p must be in (0.0, 1.0], not 0.0"),
        ({"top_k": -2}, "top_k", "top_k must be in [0, 2147483647], not -2"),
        ({"presence_penalty": 3}, "presence_penalty", "presence_penalty must be in [-2.0, 2.0], not 3.0"),
        ({"seed": -1}, "seed", "seed must be in [0, 18446744073709551615], not -1"),
        ({"seed": 1 << 64}, "seed", "seed must be an integer of at most 64 bits, not 18446744073709551616"),
        ({"stop": ""}, "stop", "a stop string must have 1 to 1024 characters, not 0"),
        ({"stop": "x" * 1025}, "stop", "a stop string must have 1 to 1024 characters, not 1025"),
        ({"stop": ["x"] * 17}, "stop", "stop may hold at most 16 strings, not 17"),
        ({"stop": ["x", 5]}, "stop", 'stop must be a string or a list of strings, not ["x", 5]'),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "stop_token_ids must hold token ids, not -1"),
        ({"logit_bias": {"a": 1}}, "logit_bias", 'logit_bias must map token ids, not "a"'),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1", 'logit_bias.1 must be a number, not "x"'),
        ({"logit_bias": {"1": 101}}, "logit_bias", "logit_bias must be in [-100.0, 100.0], not 101.0"),
        ({"ignore_eos": "no"}, "ignore_eos", 'ignore_eos must be a boolean, not "no"'),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_with_its_name_limit_and_value(body: dict[str, Any], param: str, message: str) -> None:
    assert refusal(**body) == (param, message)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "prompt must be a string or a list of token ids, not null"),
        (5, "prompt must be a string or a list of token ids, not 5"),
        (["a", "b"], "prompt may hold 1 prompt, not 2; send one request each"),
        ([1, -1], "prompt must hold token ids, not -1"),
        ([1, True], "prompt must hold token ids, not true"),
        ([1, "a"], 'prompt must hold token ids, not "a"'),
    ],
)
def test_wrong_prompt_is_refused(prompt: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        completion(prompt=prompt)

    assert (caught.value.param, caught.value.message) == ("prompt", message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON: Expecting value"),
        (b"{", "the body is not valid JSON: Expecting property name"),
        (b"\xff", "the body is not valid JSON: 'utf-8' codec"),
        (b'{"temperature": NaN}', "the body is not valid JSON: NaN is not a JSON number"),
        (b'{"temperature": -Infinity}', "the body is not valid JSON: -Infinity is not a JSON number"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "the body is not valid JSON: Exceeds the limit"),
        (b"[" * 100_000, "the body is not valid JSON: "),
        (b"[]", "the body must be a JSON object, not a list"),
        (b"null", "the body must be a JSON object, not null"),
        (b"1.5", "the body must be a JSON object, not a number"),
    ],
    ids=["empty", "cut", "no utf-8", "nan", "infinity", "huge integer", "deep", "list", "null", "number"],
)
def test_body_that_is_no_json_object_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Fields.read(body)

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 400])
def test_number_beyond_a_double_is_refused(number: str) -> None:
    with pytest.raises(InvalidArgument, match="temperature must be ") as caught:
        parse_chat(Fields.read(f'{{"messages": {json.dumps(HELLO)}, "temperature": {number}}}'.encode()), "id")
    assert caught.value.param == "temperature"


def test_long_values_are_cut_in_messages() -> None:
    _, message = refusal(model=["x" * 1000])

    assert len(message) < 150
