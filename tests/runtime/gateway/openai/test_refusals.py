"""Calls that are refused, and whole answers that fail: a status and an error object."""

import json
from typing import Any

import openai
import pytest

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import FakeScheduler, answering, refusing
from tests.support.http import exchange, post, request

HELLO: Any = [{"role": "user", "content": "hello"}]
ANNOUNCED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4194305\r\n\r\n"  # and nothing of it comes


async def test_unknown_model_is_not_found(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> None:
    message = "the model 'gpt/x' is not served here; 'tiny' is"

    with pytest.raises(openai.NotFoundError, match=message) as caught:
        await client.chat.completions.create(model="gpt/x", messages=HELLO)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match=message):
        await client.models.retrieve("gpt/x")
    assert scheduler.adds.empty()


@pytest.mark.parametrize(
    ("code", "cls", "status", "kind"),
    [
        (common_pb2.ERROR_CODE_INVALID_ARGUMENT, openai.BadRequestError, 400, "invalid_request_error"),
        (common_pb2.ERROR_CODE_OVERLOADED, openai.RateLimitError, 429, "rate_limit_error"),
        (common_pb2.ERROR_CODE_UNAVAILABLE, openai.InternalServerError, 503, "service_unavailable_error"),
        (common_pb2.ERROR_CODE_DEADLINE_EXCEEDED, openai.InternalServerError, 504, "timeout_error"),
        (common_pb2.ERROR_CODE_ENGINE_FAILED, openai.InternalServerError, 500, "server_error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_refusal_of_the_scheduler_is_a_status_and_an_error_object(
    client: openai.AsyncOpenAI,
    scheduler: FakeScheduler,
    code: common_pb2.ErrorCode.ValueType,
    cls: type[openai.APIStatusError],
    status: int,
    kind: str,
    stream: bool,
) -> None:
    scheduler.script = refusing(code, "the prompt has 600 tokens; 512 fit", "prompt")

    with pytest.raises(cls) as caught:
        await client.chat.completions.create(model="tiny", messages=HELLO, stream=stream)

    assert caught.value.status_code == status
    assert caught.value.body == {
        "message": "the prompt has 600 tokens; 512 fit",
        "type": kind,
        "param": "prompt",
        "code": common_pb2.ErrorCode.Name(code).removeprefix("ERROR_CODE_").lower(),
    }


async def test_failure_of_an_accepted_call_is_a_status(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=common_pb2.FINISH_REASON_FAILED)

    with pytest.raises(openai.InternalServerError, match="the engine failed"):
        await client.chat.completions.create(model="tiny", messages=HELLO)


@pytest.mark.parametrize(
    ("message", "status", "code", "text"),
    [
        (request("GET", "/v1/nothing"), 404, "not_found", "GET /v1/nothing: no such path"),
        (request("GET", "/v1/completions"), 405, "method_not_allowed", "GET /v1/completions: this path takes other methods"),
        (request("POST", "/v1/completions", b"{"), 400, "invalid_argument", "the body is not valid JSON: "),
        (request("POST", "/v1/completions", b"[]"), 400, "invalid_argument", "the body must be a JSON object, not []"),
        (post("/v1/chat/completions", {"messages": []}), 400, "invalid_argument", "messages must have 1 or more entries"),
        (post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 0}), 400, "invalid_argument", "max_tokens must be at least 1, not 0"),
        (post("/v1/chat/completions", {"messages": HELLO, "n": 129}), 400, "invalid_argument", "n must be at most 128, not 129"),
        (post("/v1/completions", {"prompt": []}), 400, "invalid_argument", "prompt must have 1 or more entries"),
        (post("/v1/completions", {"prompt": "\ud800"}), 400, "invalid_argument", 'prompt must be text; "\\ud800" is not Unicode'),
        (post("/v1/completions", {"prompt": "x" * (4 << 20)}), 413, "request_too_large", "the body may have at most 4194304 bytes"),
        (ANNOUNCED, 413, "request_too_large", "the body may have at most 4194304 bytes"),
    ],
    ids=["path", "method", "json", "list", "messages", "max_tokens", "n", "prompt", "surrogate", "size", "announced size"],
)  # fmt: skip
async def test_wrong_request_is_an_error_object(
    gateway: Gateway, scheduler: FakeScheduler, message: bytes, status: int, code: str, text: str
) -> None:
    answer = await exchange(gateway.http_port, message)

    error = json.loads(answer.body)["error"]
    assert answer.status == status
    assert error["message"].startswith(text)
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req-")
    assert scheduler.adds.empty()


async def test_a_long_path_is_not_repeated(gateway: Gateway) -> None:
    answer = await exchange(gateway.http_port, request("GET", "/" + "x" * 10_000))

    assert (answer.status, len(json.loads(answer.body)["error"]["message"]) < 120) == (404, True)
