"""A request that exists is valid."""

import math
from typing import Any

import pytest

from jetway.scheduler.request import InvalidRequest, Request, SamplingParams


@pytest.mark.parametrize(
    ("param", "value", "message"),
    [
        ("temperature", math.nan, r"temperature must be in \[0.0, 100.0\], not nan"),
        ("temperature", math.inf, r"temperature must be in \[0.0, 100.0\], not inf"),
        ("temperature", -0.1, r"temperature must be in \[0.0, 100.0\], not -0.1"),
        ("top_p", 0.0, r"top_p must be in \(0.0, 1.0\], not 0.0"),
        ("top_p", 1.01, r"top_p must be in \(0.0, 1.0\], not 1.01"),
        ("min_p", -0.5, r"min_p must be in \[0.0, 1.0\], not -0.5"),
        ("top_k", -1, r"top_k must be in \[0, 2147483647\], not -1"),
        ("repetition_penalty", 1e-38, r"repetition_penalty must be in \[0.01, 100.0\], not 1e-38"),
        ("presence_penalty", 2.5, r"presence_penalty must be in \[-2.0, 2.0\], not 2.5"),
        ("frequency_penalty", -2.5, r"frequency_penalty must be in \[-2.0, 2.0\], not -2.5"),
        ("logprobs", 21, r"logprobs must be in \[0, 20\], not 21"),
        ("logit_bias", ((3, 101.0),), r"logit_bias must be in \[-100.0, 100.0\], not 101.0"),
        ("min_tokens", -1, r"min_tokens must be in \[0, 2147483647\], not -1"),
        ("seed", 2**64, r"seed must be in \[0, 18446744073709551615\], not 18446744073709551616"),
        ("stop_token_ids", tuple(range(129)), "stop_token_ids may hold at most 128 entries, not 129"),
    ],
)
def test_a_sampling_parameter_out_of_range_is_named_with_its_limits(param: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as error:
        SamplingParams(**{param: value})
    assert error.value.param == param


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"prompt": []}, "prompt", "the prompt is empty; at least 1 token is needed"),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, not 0"),
        (
            {"max_tokens": -1, "sampling": SamplingParams(min_tokens=0)},
            "max_tokens",
            "max_tokens must be at least 1, not -1",
        ),
        (
            {"max_tokens": 2, "sampling": SamplingParams(min_tokens=3)},
            "min_tokens",
            "min_tokens must be at most max_tokens, which is 2, not 3",
        ),
        ({"n": 0}, "n", r"n must be in \[1, 128\], not 0"),
        ({"n": 129}, "n", r"n must be in \[1, 128\], not 129"),
    ],
)
def test_a_request_that_asks_for_nothing_is_refused(fields: dict[str, Any], param: str, message: str) -> None:
    valid: dict[str, Any] = {"id": "a", "prompt": [1], "sampling": SamplingParams()}
    with pytest.raises(InvalidRequest, match=message) as error:
        Request(**valid | fields)
    assert error.value.param == param
