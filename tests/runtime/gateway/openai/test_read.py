"""Whatever is wrong in a body is refused by name, with limit and value."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.openai.parse import parse_chat, parse_completion
from jetway.runtime.gateway.openai.read import MAX_PARTS, read_object
from jetway.runtime.gateway.openai.requests import Body, ChatBody, CompletionBody
from jetway.scheduler.request import InvalidRequest, SamplingParams
from tests.support.bodies import ENVELOPE, HELLO, chat, completion, refusal


@pytest.mark.parametrize(
    "body",
    [
        {"tools": []},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
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
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("response_format", {"type": "json_object"}),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("best_of", 2),
        ("echo", True),
        ("suffix", "x"),
        ("best_of", True),
        ("reasoning_effort", "high"),
        ("guided_json", {}),
        ("chat_template", "x"),
    ],
)
def test_unsupported_field_is_refused_by_name_and_value(param: str, value: Any) -> None:
    refused, message = refusal(chat, **{param: value})

    assert refused == param
    assert message.startswith(f"{param} {json.dumps(value)} is not supported here; leave it out")


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"messages": []}, "messages", "messages must have 1 or more entries, not 0"),
        ({"messages": None}, "messages", "messages must be a list, not null"),
        ({"messages": "hi"}, "messages", 'messages must be a list, not "hi"'),
        ({"messages": ["hi"]}, "messages[0]", 'messages[0] must be an object, not "hi"'),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "messages[0].role is missing"),
        (
            {"messages": [{"role": "tool", "content": "a"}]},
            "messages[0].role",
            "messages[0].role must be 'system', 'developer', 'user' or 'assistant', not \"tool\"",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0].content is missing"),
        (
            {"messages": [*HELLO, {"role": "user", "content": 5}]},
            "messages[1].content",
            "messages[1].content must be a string or a list of text parts, not 5",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            "messages[0].content[0].type must be 'text', not \"image_url\"",
        ),
        (
            {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls",
            "messages[0].tool_calls may have at most 0 entries, not 1",
        ),
        ({"model": 5}, "model", "model must be a string, not 5"),
        ({"stream": 1}, "stream", "stream must be a boolean, not 1"),
        ({"stream_options": {}}, "stream_options", "stream_options is allowed only with stream: true"),
        (
            {"stream": True, "stream_options": {"include_usage": "yes"}},
            "stream_options.include_usage",
            'stream_options.include_usage must be a boolean, not "yes"',
        ),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, not 0"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "max_completion_tokens must be at least 1, not -1"),
        ({"max_tokens": True}, "max_tokens", "max_tokens must be an integer, not true"),
        ({"max_tokens": 5.0}, "max_tokens", "max_tokens must be an integer, not 5.0"),
        ({"max_tokens": 1 << 40}, "max_tokens", "max_tokens must be at most 2147483647, not 1099511627776"),
        (
            {"max_tokens": 1, "max_completion_tokens": 2},
            "max_completion_tokens",
            "max_completion_tokens is 2 and max_tokens, its older name, is 1; send one of them",
        ),
        ({"n": 0}, "n", "n must be at least 1, not 0"),
        ({"n": 129}, "n", "n must be at most 128, not 129"),
        ({"top_logprobs": 1}, "top_logprobs", "top_logprobs is allowed only with logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "top_logprobs must be at most 20, not 21"),
        ({"logprobs": 1}, "logprobs", "logprobs must be a boolean, not 1"),
        ({"temperature": -0.1}, "temperature", "temperature must be at least 0.0, not -0.1"),
        ({"temperature": 101}, "temperature", "temperature must be at most 100.0, not 101"),
        ({"temperature": "hot"}, "temperature", 'temperature must be a number, not "hot"'),
        ({"temperature": True}, "temperature", "temperature must be a number, not true"),
        ({"top_p": 0}, "top_p", "top_p must be above 0.0, not 0"),
        ({"top_k": -2}, "top_k", "top_k must be at least -1, not -2"),
        ({"presence_penalty": 3}, "presence_penalty", "presence_penalty must be at most 2.0, not 3"),
        ({"seed": -1}, "seed", "seed must be at least 0, not -1"),
        ({"seed": 1 << 64}, "seed", "seed must be at most 18446744073709551615, not 18446744073709551616"),
        ({"stop": ""}, "stop", 'stop must have 1 or more characters, not ""'),
        ({"stop": "x" * 1025}, "stop", "stop may have at most 1024 characters, not 1025"),
        ({"stop": ["x"] * 17}, "stop", "stop may have at most 16 entries, not 17"),
        ({"stop": ["x", 5]}, "stop[1]", "stop[1] must be a string, not 5"),
        ({"stop": 5}, "stop", "stop must be a string or a list of strings, not 5"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "stop_token_ids[0] must be at least 0, not -1"),
        ({"stop_token_ids": [1] * 129}, "stop_token_ids", "stop_token_ids may have at most 128 entries, not 129"),
        ({"logit_bias": []}, "logit_bias", "logit_bias must be an object, not []"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a", 'logit_bias.a must map token ids, not "a"'),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1", 'logit_bias.1 must be a number, not "x"'),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "logit_bias.1 must be at most 100.0, not 101"),
        ({"ignore_eos": "no"}, "ignore_eos", 'ignore_eos must be a boolean, not "no"'),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_with_its_name_limit_and_value(body: dict[str, Any], param: str, message: str) -> None:
    assert refusal(chat, **body) == (param, message)


@pytest.mark.parametrize(
    ("prompt", "param", "message"),
    [
        (None, "prompt", "prompt must be a string, a list of token ids, or a list of either, not null"),
        (5, "prompt", "prompt must be a string, a list of token ids, or a list of either, not 5"),
        ([], "prompt", "prompt must have 1 or more entries, not 0"),
        ([[]], "prompt[0]", "prompt[0] must have 1 or more entries, not 0"),
        (["a"] * 129, "prompt", "prompt may have at most 128 entries, not 129"),
        ([1, -1], "prompt[1]", "prompt[1] must be at least 0, not -1"),
        ([1, True], "prompt[1]", "prompt[1] must be an integer, not true"),
        ([1, "a"], "prompt[1]", 'prompt[1] must be an integer, not "a"'),
        (["a", 1], "prompt[1]", "prompt[1] must be a string, not 1"),
        ([[1], [2, "a"]], "prompt[1][1]", 'prompt[1][1] must be an integer, not "a"'),
    ],
)
def test_wrong_prompt_is_refused(prompt: Any, param: str, message: str) -> None:
    assert refusal(completion, prompt=prompt) == (param, message)


def test_more_choices_than_a_call_may_ask_for_are_refused() -> None:
    assert len(completion(prompt=["a"] * 64, n=2).call.prompts) == 64
    assert refusal(completion, prompt=["a"] * 65, n=2) == (
        "n",
        "n times the number of prompts must be in [1, 128], not 2 x 65",
    )


@pytest.mark.parametrize(
    "name",
    ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens"],
)
def test_ranges_are_those_of_the_sampling_parameters(name: str) -> None:
    limits = {type(limit).__name__: limit for limit in ChatBody.model_fields[name].metadata}
    [low] = [getattr(limits[kind], kind.lower()) for kind in ("Ge", "Gt") if kind in limits]
    high = limits["Le"].le

    SamplingParams(**{name: high})
    for beyond in (high + 1, low - 1):
        with pytest.raises(InvalidRequest):
            SamplingParams(**{name: beyond})
    if "Ge" in limits:
        SamplingParams(**{name: low})
    else:
        with pytest.raises(InvalidRequest):
            SamplingParams(**{name: low})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON: Expecting value"),
        (b"{", "the body is not valid JSON: Expecting property name"),
        (b"\xff", "the body is not valid JSON: 'utf-8' codec"),
        (b'{"temperature": NaN}', "the body is not valid JSON: NaN is not a JSON number"),
        (b'{"temperature": -Infinity}', "the body is not valid JSON: -Infinity is not a JSON number"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "a number in the body has more than 4300 digits, which is the limit"),
        (b'{"max_tokens": 5, "max_tokens": 500}', "the body has 'max_tokens' twice in one object"),
        (
            b'{"messages": [{"role": "user", "content": "a", "role": "system"}]}',
            "the body has 'role' twice in one object",
        ),
        (b"[" * 10_000, "the body is nested too deeply"),
        (b"[]", "the body must be a JSON object, not []"),
        (b"null", "the body must be a JSON object, not null"),
        (b"1.5", "the body must be a JSON object, not 1.5"),
    ],
    ids=[
        "empty",
        "cut",
        "no utf-8",
        "nan",
        "infinity",
        "huge integer",
        "twice",
        "twice inside",
        "deep",
        "list",
        "null",
        "number",
    ],
)
def test_body_that_is_no_json_object_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_chat(body, ENVELOPE)

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    "part",
    ["{}", "[]", '{"a":[]}', '{"a":"\\\\"}', '{"\\"":1}'],
    ids=["objects", "lists", "both", "backslash", "quote"],
)
def test_body_of_too_many_parts_is_refused_before_they_are_made(part: str) -> None:
    num_parts = sum(map(part.count, "[{:"))
    most = (MAX_PARTS - 3) // num_parts  # beside the body itself, its name and its list
    assert len(read_object(f'{{"z":[{",".join([part] * most)}]}}'.encode())["z"]) == most
    with pytest.raises(InvalidArgument) as caught:
        read_object(f'{{"z":[{",".join([part] * (most + 1))}]}}'.encode())
    found = 3 + (most + 1) * num_parts
    assert caught.value.message == f"the body may have at most 65536 objects, lists and names, not {found}"


@pytest.mark.parametrize("text", ["{[:", '\\"{"', "\\{\\\\", '"\\\\"["'])
def test_what_stands_in_strings_is_no_part(text: str) -> None:
    long = text * MAX_PARTS
    assert read_object(json.dumps({"prompt": long, long: 1}).encode()) == {"prompt": long, long: 1}


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (ChatBody, {"messages": [{"role": "user"}] * 100}),
        (ChatBody, {"messages": [{"role": "user", "content": [{"type": "text"}] * 100}]}),
        (CompletionBody, {"prompt": [1] + [""] * 100}),
    ],
)
def test_of_many_errors_only_the_first_is_made(model: type[Body], body: dict[str, Any]) -> None:
    """They may come by the million."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 400])
def test_number_beyond_a_double_is_refused(number: str) -> None:
    with pytest.raises(InvalidArgument, match="temperature must be ") as caught:
        parse_chat(f'{{"messages": {json.dumps(HELLO)}, "temperature": {number}}}'.encode(), ENVELOPE)
    assert caught.value.param == "temperature"


def test_long_values_are_cut_in_messages() -> None:
    _, message = refusal(chat, model=["x" * 1000])

    assert len(message) < 150


LONG = "x" * 100_000
DEPTHS = [100, 900, *range(940, 1000), 5000]


@pytest.mark.parametrize(
    "around",
    [
        '{"prompt": %s}',
        '{"prompt": "a", "temperature": %s}',
        '{"prompt": "a", "tools": %s}',
        '{"prompt": "a", "stop": %s}',
        '{"prompt": "a", "logit_bias": {"1": %s}}',
        "%s",
    ],
)
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_of_any_depth_is_refused_as_any_wrong_value(around: str, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    for depth in DEPTHS:
        body = around % (opening * depth + "1" + closing * depth)
        with pytest.raises(InvalidArgument) as caught:
            parse_completion(body.encode(), ENVELOPE)
        assert len(caught.value.message) < 300


def test_nesting_in_a_field_that_is_ignored_is_no_error_of_ours() -> None:
    body = '{"prompt": "a", "metadata": %s}' % ("[" * 900 + "]" * 900)
    assert parse_completion(body.encode(), ENVELOPE).call.prompts == ("a",)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"prompt": "\\ud800"}', "prompt"),
        ('{"prompt": ["a", "\\udfff"]}', "prompt[1]"),
        ('{"prompt": "a", "stop": "\\ud800"}', "stop"),
        ('{"prompt": "a", "model": "\\ud800"}', "model"),
        ('{"prompt": "a", "service_tier": "\\ud800"}', "service_tier"),
    ],
)
def test_half_a_surrogate_pair_is_refused_as_no_text(body: str, param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_completion(body.encode(), ENVELOPE)
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param} must be text; ")
    assert caught.value.message.isascii()


@pytest.mark.parametrize(
    "body",
    [
        {"service_tier": LONG},
        {"tools": [LONG]},
        {"temperature": LONG},
        {"logit_bias": {LONG: 1}},
        {"logit_bias": {"1": LONG}},
        {"stop_token_ids": [int("9" * 4000)]},
    ],
)
def test_messages_do_not_grow_with_what_clients_send(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        completion(**body)
    assert len(caught.value.message) + len(caught.value.param or "") < 400
