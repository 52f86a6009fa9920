"""A gateway behind a real Triton server: its clients, its cancellations, and a restart under it."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import aio

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, refusing, sampled
from tests.support.gateway import running_gateway
from tests.support.triton import TRUE, is_final, request_stream, text_inputs, texts, token_inputs
from tests.support.triton_server import TritonBefore

pytestmark = pytest.mark.timeout(90)  # the first test starts the server

ASK: dict[str, Any] = {"text_input": "hi", "max_tokens": 8, "exclude_input_in_output": True}


@asynccontextmanager
async def jetway(triton: TritonBefore, engine_dir: Path, scheduler: FakeScheduler) -> AsyncIterator[Gateway]:
    """A gateway where the models expect it."""
    ports: dict[str, Any] = {"port": triton.jetway_http_port, "grpc_port": triton.jetway_grpc_port}
    async with running_gateway(engine_dir, scheduler.address, **ports) as gateway:
        yield gateway


@pytest.fixture
async def gateway(triton: TritonBefore, engine_dir: Path, scheduler: FakeScheduler) -> AsyncIterator[Gateway]:
    async with jetway(triton, engine_dir, scheduler) as gateway:
        yield gateway


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def stream(client: aio.InferenceServerClient, model: str, inputs: Any, request_id: str = "") -> Any:
    return client.stream_infer(request_stream([{"model_name": model, "inputs": inputs, "request_id": request_id}]))


class Answer(NamedTuple):
    status: int
    body: str


async def post(triton: TritonBefore, path: str, body: dict[str, Any]) -> Answer:
    def send() -> Answer:
        url = f"http://127.0.0.1:{triton.server.http_port}/v2/models/{path}"
        try:
            with urllib.request.urlopen(url, json.dumps(body).encode()) as response:
                return Answer(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    return await asyncio.to_thread(send)


async def test_grpc_streams(
    client: aio.InferenceServerClient, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    answers = stream(client, "ensemble", text_inputs(stream=TRUE), "7")
    first = asyncio.ensure_future(anext(answers))
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))
    scheduler.send(sampled(handle, ids(tokenizer, "a")))
    result, error = await first
    scheduler.send(sampled(handle, ids(tokenizer, "b"), LENGTH))
    rest = [(texts(each), is_final(each)) async for each, _ in answers]
    assert (error, texts(result), is_final(result), result.get_response().id) == (None, ["a"], False, "7")
    assert rest == [(["b"], True)]


async def test_the_same_token_ids_as_without_triton(
    client: aio.InferenceServerClient, gateway: Gateway, scheduler: FakeScheduler
) -> None:
    scheduler.script = answering([11, 12, 13])
    asked = token_inputs([7, 8], 3, exclude_input_in_output=TRUE)
    async with aio.InferenceServerClient(f"127.0.0.1:{gateway.grpc_port}") as direct:
        own = await direct.infer("tensorrt_llm", asked)
    [(result, _)] = [each async for each in stream(client, "tensorrt_llm", asked)]
    for name in ("output_ids", "sequence_length", "sequence_index", "batch_index"):
        assert result.as_numpy(name).tolist() == own.as_numpy(name).tolist()
    first, second = await scheduler.adds.get(), await scheduler.adds.get()
    assert (first.prompt, first.max_tokens) == (second.prompt, second.max_tokens)
    assert first.sampling.temperature == second.sampling.temperature == 0


async def test_http_whole_and_streamed(
    triton: TritonBefore, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "ab"))
    whole = await post(triton, "ensemble/generate", ASK)
    streamed = await post(triton, "ensemble/generate_stream", ASK | {"stream": True})
    assert (whole.status, json.loads(whole.body)["text_output"]) == (200, "ab")
    [event] = streamed.body.strip().split("\n\n")
    assert json.loads(event.removeprefix("data: "))["text_output"] == "ab"


async def test_a_client_that_cancels_frees_its_place_in_jetway(
    client: aio.InferenceServerClient, gateway: Gateway, scheduler: FakeScheduler
) -> None:
    answers = stream(client, "ensemble", text_inputs(stream=TRUE))
    reading = asyncio.ensure_future(anext(answers))
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))
    answers.cancel()
    assert await scheduler.cancels.get() == handle
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_errors_and_a_full_queue(
    client: aio.InferenceServerClient, triton: TritonBefore, gateway: Gateway, scheduler: FakeScheduler
) -> None:
    [(_, error)] = [each async for each in stream(client, "ensemble", text_inputs(max_tokens=0), "7")]
    assert "max_tokens must be at least 1, not 0" in error.message()
    scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "full")
    [(_, error)] = [each async for each in stream(client, "ensemble", text_inputs(), "7")]
    assert error.message() == "[request id: 7] Exceeds maximum queue size"


async def test_many_streams_at_once(
    client: aio.InferenceServerClient, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """Each gets its own answer: here, its own prompt."""

    def echo(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
        *first, last = add.prompt[1:]
        return [
            accepted(add.handle),
            *(sampled(add.handle, [each]) for each in first),
            sampled(add.handle, [last], LENGTH),
        ]

    scheduler.script = echo

    async def answer(prompt: str) -> str:
        answers = stream(client, "ensemble", text_inputs(prompt, stream=TRUE))
        return "".join([texts(result)[0] async for result, _ in answers])

    prompts = [f"prompt number {number}" for number in range(32)]
    assert await asyncio.gather(*map(answer, prompts)) == prompts


async def test_the_gateway_restarts_under_it(
    client: aio.InferenceServerClient,
    triton: TritonBefore,
    engine_dir: Path,
    scheduler: FakeScheduler,
    tokenizer: Tokenizer,
) -> None:
    async with jetway(triton, engine_dir, scheduler):
        answers = stream(client, "ensemble", text_inputs(stream=TRUE))
        reading = asyncio.ensure_future(anext(answers))
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        scheduler.send(sampled(handle, ids(tokenizer, "a")))
        assert texts((await reading)[0]) == ["a"]
    [(_, cut)] = [each async for each in answers]
    [(_, down)] = [each async for each in stream(client, "ensemble", text_inputs())]
    scheduler.script = answering(ids(tokenizer, "b"))
    async with jetway(triton, engine_dir, scheduler):
        [(again, _)] = [each async for each in stream(client, "ensemble", text_inputs())]
    assert cut is not None
    assert down.message().startswith(f"the connection to Jetway at {triton.address} failed: ")
    assert texts(again) == ["hib"]


async def test_unary_grpc_is_refused_as_for_every_decoupled_model(
    client: aio.InferenceServerClient, gateway: Gateway
) -> None:
    with pytest.raises(Exception, match="ModelInfer RPC doesn't support models with decoupled transaction policy"):
        await client.infer("ensemble", text_inputs())
