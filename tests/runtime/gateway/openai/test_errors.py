"""Errors as the official client meets them: what it retries, when, and what it raises inside a stream."""

import asyncio
import json
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from jetway.runtime.errors import EDGES, JetwayError
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.openai.errors import retry_headers
from jetway.runtime.gateway.openai.format import Format
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, refused, refusing, sampled
from tests.support.http import connection, events_of, exchange, post

HELLO: Any = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"messages": HELLO}
PATH = "/v1/chat/completions"


@pytest.mark.parametrize("cls", EDGES, ids=lambda cls: cls.__name__)
def test_headers_say_whether_a_retry_can_mend_and_when(cls: type[JetwayError]) -> None:
    retryable = EDGES[cls].retryable

    assert retry_headers(cls("why")) == ({} if retryable else {"x-should-retry": "false"})
    assert retry_headers(cls("why", retry_after_s=7)) == (
        {"retry-after": "7"} if retryable else {"x-should-retry": "false"}
    )


async def test_overload_says_when_to_come_back(gateway: Gateway, scheduler: FakeScheduler) -> None:
    error = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="full", retry_after_s=7)
    scheduler.script = lambda add: [refused(add.handle, error)]

    answer = await exchange(gateway.http_port, post(PATH, BODY))

    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert "x-should-retry" not in answer.headers


async def test_official_client_does_not_retry_what_a_retry_cannot_mend(
    gateway: Gateway, scheduler: FakeScheduler
) -> None:
    scheduler.script = answering([5], reason=common_pb2.FINISH_REASON_FAILED)

    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{gateway.http_port}/v1", api_key="none", max_retries=2
    ) as client:
        with pytest.raises(openai.InternalServerError, match="the engine failed"):
            await client.chat.completions.create(model="tiny", messages=HELLO)

    await scheduler.adds.get()
    assert scheduler.adds.empty()


async def test_official_client_retries_when_the_server_says(gateway: Gateway, scheduler: FakeScheduler) -> None:
    busy = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="full", retry_after_s=0)
    answer = answering([5], reason=LENGTH)
    scheduler.script = lambda add: [refused(1, busy)] if add.handle == 1 else answer(add)

    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{gateway.http_port}/v1", api_key="none", max_retries=1
    ) as client:
        completion = await client.chat.completions.create(model="tiny", messages=HELLO)

    assert completion.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("reason", "code", "kind"),
    [
        (common_pb2.FINISH_REASON_FAILED, "engine_failed", "server_error"),
        (common_pb2.FINISH_REASON_EXPIRED, "deadline_exceeded", "timeout_error"),
        (common_pb2.FINISH_REASON_CANCELLED, "cancelled", "cancelled_error"),
    ],
)
@pytest.mark.parametrize("logprobs", [False, True])
async def test_stream_that_fails_ends_with_an_error_and_then_done(
    gateway: Gateway,
    scheduler: FakeScheduler,
    reason: common_pb2.FinishReason.ValueType,
    code: str,
    kind: str,
    logprobs: bool,
) -> None:
    scheduler.script = answering([5], [6], reason=reason)

    *_, error, done = await events_of(gateway.http_port, PATH, BODY | {"logprobs": logprobs})

    told = json.loads(error)
    assert set(told) == {"error"}
    assert set(told["error"]) == {"message", "type", "param", "code"}
    assert (told["error"]["code"], told["error"]["type"]) == (code, kind)
    assert done == "[DONE]"


async def test_fault_of_the_gateway_ends_a_stream_the_same_way(
    gateway: Gateway, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Format, delta: object) -> str:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Format, "delta", fail)
    scheduler.script = lambda add: [accepted(add.handle), sampled(add.handle, [5])]

    *_, error, done = await events_of(gateway.http_port, PATH, BODY)

    assert json.loads(error)["error"]["code"] == "internal"
    assert "a fault" not in error.replace("a fault of the gateway", "")
    assert done == "[DONE]"
    assert await scheduler.cancels.get() == 1


async def test_official_client_raises_what_ends_a_stream(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = tokenizer.encode("ab", add_special_tokens=False).ids
    scheduler.script = answering(tokens, [], reason=common_pb2.FINISH_REASON_EXPIRED)
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    texts = []

    with pytest.raises(openai.APIError, match="took longer than it may") as caught:
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content)

    assert (caught.value.code, caught.value.type, caught.value.param) == ("deadline_exceeded", "timeout_error", None)
    assert "".join(text or "" for text in texts) == "ab"


async def test_refused_stream_has_a_status_and_no_event(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.script = refusing(common_pb2.ERROR_CODE_UNAVAILABLE, "starting")

    answer = await exchange(gateway.http_port, post(PATH, BODY | {"stream": True}))

    assert (answer.status, answer.headers["content-type"]) == (503, "application/json")
    assert json.loads(answer.body)["error"]["message"] == "starting"


async def test_comments_keep_a_silent_stream_alive(
    gateway: Gateway, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetway.runtime.gateway.events.KEEP_ALIVE_S", 0.005)
    scheduler.script = lambda add: [accepted(add.handle)]
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(post(PATH, BODY | {"stream": True}))
        await reader.readuntil(b": keep-alive\n\n")
        scheduler.send(sampled(1, [5], LENGTH))
        rest = await reader.readuntil(b"data: [DONE]\n\n")

    assert b'"finish_reason":"length"' in rest


async def test_official_client_reads_over_comments(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    monkeypatch.setattr("jetway.runtime.gateway.events.KEEP_ALIVE_S", 0.001)
    scheduler.script = lambda add: [accepted(add.handle)]
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    await asyncio.sleep(0.01)
    scheduler.send(sampled(1, tokenizer.encode("ab", add_special_tokens=False).ids, LENGTH))

    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "ab"
