"""The HTTP API as OpenAI's own client sees it, on a real server."""

import asyncio
import json
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import scheduler_pb2
from tests.support.fake_scheduler import LENGTH, STOP, FakeScheduler, accepted, answering, sampled
from tests.support.http import Answer, connection, events_of, exchange, read_head, request
from tests.support.tokenizers import EOS, ids_of

HELLO: Any = [{"role": "user", "content": "hello"}]
HELLO_TOKENS = "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def test_chat(client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "Paris"), ids_of(tokenizer, EOS), reason=STOP)

    completion = await client.chat.completions.create(model="tiny", messages=HELLO, max_completion_tokens=9, seed=3)

    [choice] = completion.choices
    assert (choice.index, choice.message.role, choice.message.content) == (0, "assistant", "Paris")
    assert choice.finish_reason == "stop"
    assert (completion.object, completion.model) == ("chat.completion", "tiny")
    assert completion.id.startswith("chatcmpl-")
    assert completion.usage is not None
    prompt = ids(tokenizer, HELLO_TOKENS)
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (len(prompt), 6, len(prompt) + 6)
    add = await scheduler.adds.get()
    assert list(add.prompt) == prompt
    assert (add.request_id, add.max_tokens, add.sampling.seed) == (completion.id, 9, 3)


async def test_chat_stream(client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    frames = [[token] for token in ids(tokenizer, "삼겹살🙂")]
    scheduler.script = answering(*frames, reason=LENGTH)

    stream = await client.chat.completions.create(
        model="tiny", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    *with_choice, last = chunks
    choices = [chunk.choices[0] for chunk in with_choice]
    assert choices[0].delta.role == "assistant"
    assert all(choice.delta.role is None for choice in choices[1:])
    assert "".join(choice.delta.content or "" for choice in choices) == "삼겹살🙂"
    assert [choice.finish_reason for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert all(chunk.usage is None for chunk in with_choice)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == len(frames)
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


async def test_stream_without_usage_ends_with_the_finish_reason(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"), reason=LENGTH)

    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    chunks = [chunk async for chunk in stream]

    assert chunks[-1].choices[0].finish_reason == "length"
    assert all("usage" not in chunk.model_fields_set for chunk in chunks)


async def test_completion_of_text(client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "ďá"), reason=LENGTH)

    completion = await client.completions.create(model="tiny", prompt="hi")

    [choice] = completion.choices
    assert (choice.text, choice.finish_reason) == ("ďá", "length")
    assert (completion.object, completion.id.startswith("cmpl-")) == ("text_completion", True)
    add = await scheduler.adds.get()
    assert list(add.prompt) == tokenizer.encode("hi").ids
    assert add.max_tokens == 16


async def test_completion_of_token_ids_streams(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(*([token] for token in ids(tokenizer, "abc")), reason=LENGTH)

    stream = await client.completions.create(model="tiny", prompt=[5, 6], stream=True)
    chunks = [chunk async for chunk in stream]

    assert "".join(chunk.choices[0].text for chunk in chunks) == "abc"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert list((await scheduler.adds.get()).prompt) == [5, 6]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_stop_string_split_over_tokens_ends_the_text_before_it(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer, stream: bool
) -> None:
    def script(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
        tokens = ids(tokenizer, "one END two")
        return [accepted(add.handle), *(sampled(add.handle, [token]) for token in tokens)]

    scheduler.script = script

    if stream:
        chunks = await client.completions.create(
            model="tiny", prompt="x", stop="END", stream=True, stream_options={"include_usage": True}
        )
        every = [chunk async for chunk in chunks]
        text = "".join(chunk.choices[0].text for chunk in every if chunk.choices)
        reason, usage = every[-2].choices[0].finish_reason, every[-1].usage
    else:
        completion = await client.completions.create(model="tiny", prompt="x", stop="END")
        text, reason, usage = completion.choices[0].text, completion.choices[0].finish_reason, completion.usage

    assert (text, reason) == ("one ", "stop")
    assert usage is not None
    assert usage.completion_tokens == len("one END")
    finish = await scheduler.finishes.get()
    assert (finish.sequence_index, finish.kept_tokens) == (0, len("one END"))


async def test_blocking_client(gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "Pa"), ids(tokenizer, "ris"), reason=LENGTH)

    def stream_text() -> str:
        base_url = f"http://127.0.0.1:{gateway.http_port}/v1"
        with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert await asyncio.to_thread(stream_text) == "Paris"


async def test_models(client: openai.AsyncOpenAI) -> None:
    [model] = (await client.models.list()).data

    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "jetway")
    assert await client.models.retrieve("tiny") == model


async def test_events_of_a_stream_are_ascii_lines(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    text = 'a\u2028"\n\x00🙂'
    scheduler.script = answering(ids(tokenizer, text), reason=LENGTH)

    role, content, finish, done = await events_of(gateway.http_port, "/v1/chat/completions", {"messages": HELLO})

    assert json.loads(role)["choices"][0] == {
        "index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None,
    }  # fmt: skip
    assert json.loads(content)["choices"][0]["delta"] == {"content": text}
    assert json.loads(finish)["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert done == "[DONE]"


@pytest.mark.parametrize(
    ("given", "kept"), [("mine-1", True), ("with space", False), ("x" * 129, False)], ids=["plain", "space", "long"]
)
async def test_request_id_of_the_client_comes_back_where_it_is_plain(gateway: Gateway, given: str, kept: bool) -> None:
    answer = await exchange(gateway.http_port, request("GET", "/v1/models", headers=f"x-request-id: {given}\r\n"))

    assert (answer.headers["x-request-id"] == given) is kept


@pytest.mark.parametrize("path", ["/health", "/health/ready"])
async def test_health(gateway: Gateway, path: str) -> None:
    answer = await exchange(gateway.http_port, request("GET", path))

    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')


async def test_a_gateway_is_ready_while_the_scheduler_is(gateway: Gateway, scheduler: FakeScheduler) -> None:
    async def wait_for(status: int) -> Answer:
        while (answer := await exchange(gateway.http_port, request("GET", "/health/ready"))).status != status:
            pass
        return answer

    scheduler.send(scheduler_pb2.SessionFrame(is_ready=False))
    answer = await wait_for(503)
    message = "the scheduler has no executor, or waits for a step that does not end"
    assert json.loads(answer.body)["error"]["message"] == message
    assert (await exchange(gateway.http_port, request("GET", "/health"))).status == 200
    scheduler.send(scheduler_pb2.SessionFrame(is_ready=True))
    await wait_for(200)


@pytest.mark.parametrize(
    "path", ["/health", "/health/ready", "/v1/models", "/v1/models/tiny", "/metrics", "/openapi.json"]
)
async def test_head_is_get_without_the_body(gateway: Gateway, path: str) -> None:
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(request("HEAD", path, headers="connection: close\r\n"))
        head = await read_head(reader)
        rest = await reader.read()

    got = await exchange(gateway.http_port, request("GET", path))
    assert (head.status, head.headers["content-type"]) == (200, got.headers["content-type"])
    assert rest == b""
