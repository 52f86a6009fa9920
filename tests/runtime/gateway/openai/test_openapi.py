"""The OpenAPI document and the server agree: schemathesis sends what the document allows, and what it does not."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.openai import responses
from jetway.runtime.gateway.openai.openapi import document
from jetway.runtime.gateway.openai.requests import ChatBody, CompletionBody
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, sampled, scored
from tests.support.http import events_of

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,unsupported_method"
)


def answer_all(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
    """Two tokens for every choice, with log-probabilities where the call asks."""
    frames = [accepted(add.handle)]
    for index in range(add.n):
        frame = sampled(add.handle, [65, 200], LENGTH, index=index)
        if add.sampling.HasField("logprobs"):
            scored(frame, [common_pb2.TokenLogprobs(logprob=-1, top_tokens=[3], top_logprobs=[-2])] * 2)
        frames.append(frame)
    return frames


@pytest.mark.timeout(60)  # a process of its own, which generates what it sends
async def test_schemathesis_finds_no_fault_and_only_documented_statuses(
    gateway: Gateway, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    scheduler.script = answer_all
    arguments = [
        "--checks", CHECKS, "--phases", "fuzzing", "--max-examples", "10", "--seed", "1", "--continue-on-failure",
        "--no-color",
    ]  # fmt: skip

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
        "run", f"http://127.0.0.1:{gateway.http_port}/openapi.json", *arguments,
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()

    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "logprobs": True}, responses.ChatChunk),
        ("/v1/completions", {"prompt": "a", "logprobs": 1}, responses.TextChunk),
    ],
    ids=["chat", "completion"],
)  # fmt: skip
async def test_events_have_the_documented_shape(
    gateway: Gateway, scheduler: FakeScheduler, path: str, body: dict[str, Any], model: type[BaseModel]
) -> None:
    scheduler.script = answer_all
    body = {**body, "n": 2, "stream_options": {"include_usage": True}}

    *events, done = await events_of(gateway.http_port, path, body)

    assert done == "[DONE]"
    for event in events:
        model.model_validate_json(event, strict=True)


@pytest.mark.parametrize("body", [ChatBody, CompletionBody])
def test_every_field_of_a_body_is_documented_with_its_meaning(body: type[BaseModel]) -> None:
    schema = document()["components"]["schemas"][body.__name__]

    assert set(body.model_fields) <= set(schema["properties"])
    assert all("description" in each for each in schema["properties"].values())
