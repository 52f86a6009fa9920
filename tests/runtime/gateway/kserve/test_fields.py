"""A client reads the names that it wrote: its tensors', whatever the field of a call is called."""

from pathlib import Path
from typing import Any

import pytest

from jetway.v1 import common_pb2
from tests.support.fake_scheduler import FakeScheduler, refusing
from tests.support.gateway import running_gateway
from tests.support.triton import generate, parsed

TEXT: dict[str, Any] = {"text_input": "hi", "max_tokens": 8}
IDS: dict[str, Any] = {"input_ids": [7], "input_lengths": 1, "request_output_len": 8}
OF_TEXT = [
    ({"num_return_sequences": -1}, "num_return_sequences must be in [1, 128], not -1"),
    ({"min_length": 9}, "min_length must be at most max_tokens, which is 8, not 9"),
    ({"min_tokens": 9}, "min_tokens must be at most max_tokens, which is 8, not 9"),
    ({"stop_words": ["a"] * 17}, "stop_words may hold at most 16 strings, not 17"),
]
OF_IDS = [
    ({"request_output_len": -1}, "request_output_len must be at least 1, not -1"),
    ({"min_length": 9}, "min_length must be at most request_output_len, which is 8, not 9"),
    ({"runtime_top_k": -1}, "[request id: n] runtime_top_k must be in [0, 2147483647], not -1"),
    ({"runtime_top_p": 2}, "[request id: n] runtime_top_p must be in (0.0, 1.0], not 2.0"),
]
OF_LLMAPI = [
    ({"sampling_param_max_tokens": 0}, "sampling_param_max_tokens must be at least 1, not 0"),
    ({"sampling_param_top_p": -1}, "[request id: n] sampling_param_top_p must be in (0.0, 1.0], not -1.0"),
]


@pytest.mark.parametrize(
    ("model", "dialect", "body", "given", "message"),
    [
        *(("ensemble", "inflight", TEXT, *each) for each in OF_TEXT),
        *(("tensorrt_llm", "inflight", IDS, *each) for each in OF_IDS),
        *(("tensorrt_llm", "llmapi", {"text_input": "hi"}, *each) for each in OF_LLMAPI),
    ],
)
async def test_a_tensor_that_is_wrong_is_told_by_its_own_name(
    engine_dir: Path,
    scheduler: FakeScheduler,
    model: str,
    dialect: str,
    body: dict[str, Any],
    given: dict[str, Any],
    message: str,
) -> None:
    """The id is a field's name, and stays what it is."""
    async with running_gateway(engine_dir, scheduler.address, kserve_dialect=dialect) as gateway:
        answer = await generate(gateway, f"{model}/generate", body | {"id": "n"} | given)
    assert (answer.status, parsed(answer)) == (400, {"error": message})


async def test_what_the_scheduler_says_of_a_field_too(engine_dir: Path, scheduler: FakeScheduler) -> None:
    scheduler.script = refusing(
        common_pb2.ERROR_CODE_INVALID_ARGUMENT,
        "stop_token_ids: token id 999 is not in the vocabulary",
        "stop_token_ids",
    )
    async with running_gateway(engine_dir, scheduler.address) as gateway:
        answer = await generate(gateway, "ensemble/generate", TEXT | {"end_id": 999})
    assert (answer.status, parsed(answer)) == (400, {"error": "end_id: token id 999 is not in the vocabulary"})
