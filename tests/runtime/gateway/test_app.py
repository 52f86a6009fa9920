"""The life of a gateway: start, what stops it from starting, drain and stop."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tokenizers import Tokenizer

from jetway.builder import manifest
from jetway.runtime.errors import ConfigError
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.surroundings import Alone
from jetway.v1 import inference_pb2, inference_pb2_grpc
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, sampled
from tests.support.gateway import CONFIG, running_gateway
from tests.support.http import connection, exchange, post, read_answer, request

HELLO: Any = [{"role": "user", "content": "hello"}]


async def opened_stream(client: openai.AsyncOpenAI, scheduler: FakeScheduler) -> tuple[Any, int]:
    """A stream that the scheduler has accepted, and its handle."""
    scheduler.script = lambda add: [accepted(add.handle)]
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    return stream, (await scheduler.adds.get()).handle


async def text_of(stream: Any) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_gateway_without_a_scheduler_listens_and_refuses(engine_dir: Path) -> None:
    gateway = Gateway(CONFIG, engine_dir, "mine", Alone("unix:/nonexistent.sock"))
    await gateway.start()

    assert (await exchange(gateway.http_port, request("GET", "/health"))).status == 200
    for message in (
        request("GET", "/health/ready"),
        request("GET", "/v1/models"),
        post("/v1/completions", {"prompt": "a"}),
    ):
        answer = await exchange(gateway.http_port, message)
        assert answer.status == 503
        assert json.loads(answer.body)["error"]["code"] == "unavailable"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        stub: Any = inference_pb2_grpc.InferenceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(inference_pb2.GenerateRequest(text="a"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await gateway.stop(0.0)


async def test_model_has_the_name_that_it_is_given(engine_dir: Path, scheduler: FakeScheduler) -> None:
    gateway = Gateway(CONFIG, engine_dir, "mine", Alone(scheduler.address))
    await gateway.start()
    await gateway.ready()

    assert gateway.model_name == "mine"
    assert (await exchange(gateway.http_port, request("GET", "/v1/models/mine"))).status == 200
    assert (await exchange(gateway.http_port, request("GET", "/v1/models/tiny"))).status == 404
    await gateway.stop(0.0)


async def test_streams_go_on_when_the_scheduler_is_replaced(
    client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    stream, handle = await opened_stream(client, scheduler)
    tokens = tokenizer.encode("abc", add_special_tokens=False).ids
    scheduler.send(sampled(handle, tokens[:2]))

    scheduler.end_session()
    again = await scheduler.adds.get()
    scheduler.send(sampled(again.handle, tokens[2:], LENGTH))

    assert [list(each.tokens) for each in again.generated] == [tokens[:2]]
    assert await text_of(stream) == "abc"


async def test_a_scheduler_that_is_not_replaced_ends_streams_as_unavailable(
    engine_dir: Path, scheduler: FakeScheduler
) -> None:
    async with running_gateway(engine_dir, scheduler.address, recovery_limit_s=0.0) as gateway:
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.http_port}/v1", api_key="-", max_retries=0)
        stream, _ = await opened_stream(client, scheduler)

        await scheduler.__aexit__(None, None, None)

        with pytest.raises(openai.APIError, match="the connection to the scheduler was lost") as caught:
            await text_of(stream)
        assert caught.value.code == "unavailable"
        await client.close()


async def test_stop_lets_open_streams_end(
    gateway: Gateway, client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    stream, handle = await opened_stream(client, scheduler)
    reading = asyncio.create_task(text_of(stream))

    stopping = asyncio.create_task(gateway.stop(10.0))
    await asyncio.sleep(0)
    scheduler.send(sampled(handle, tokenizer.encode("abc", add_special_tokens=False).ids, LENGTH))

    assert await reading == "abc"
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await exchange(gateway.http_port, request("GET", "/health"))


async def test_stop_refuses_new_calls_on_open_connections(
    gateway: Gateway, client: openai.AsyncOpenAI, scheduler: FakeScheduler
) -> None:
    stream, handle = await opened_stream(client, scheduler)
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(request("GET", "/health"))
        assert (await read_answer(reader)).status == 200

        stopping = asyncio.create_task(gateway.stop(10.0))
        await asyncio.sleep(0)
        writer.write(post("/v1/completions", {"prompt": "a"}))
        answer = await read_answer(reader)
        assert answer.status == 503
        assert json.loads(answer.body)["error"]["message"] == "the gateway is shutting down; try again"

    scheduler.send(sampled(handle, [], LENGTH))
    assert await text_of(stream) == ""
    await stopping


async def test_stop_ends_what_is_left_after_the_drain(
    gateway: Gateway, client: openai.AsyncOpenAI, scheduler: FakeScheduler
) -> None:
    stream, _ = await opened_stream(client, scheduler)
    reading = asyncio.create_task(text_of(stream))

    await gateway.stop(0.01)

    with pytest.raises(openai.APIError, match="the gateway is shutting down"):
        await reading


async def test_what_is_no_call_does_not_delay_a_stop(gateway: Gateway, channel: grpc.aio.Channel) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)
    watch = health.Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    async with connection(gateway.http_port) as (_, writer):
        writer.write(post("/v1/completions", {"prompt": "a"})[:-1])  # an upload that never ends
        await writer.drain()
        await exchange(gateway.http_port, request("GET", "/health"))  # the server has read it by then

        async with asyncio.timeout(10.0):
            await gateway.stop(600.0)
    watch.cancel()


@pytest.mark.parametrize("port", ["port", "grpc_port"])
async def test_port_in_use_is_a_config_error(
    gateway: Gateway, engine_dir: Path, scheduler: FakeScheduler, port: str
) -> None:
    taken = {"port": gateway.http_port, "grpc_port": gateway.grpc_port}[port]
    config: dict[str, Any] = {port: taken}

    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {taken}"):
        async with running_gateway(engine_dir, scheduler.address, **config):
            pass
    scheduler.script = answering([5], reason=LENGTH)
    assert (await exchange(gateway.http_port, post("/v1/completions", {"prompt": "a"}))).status == 200


@pytest.mark.parametrize("missing", [manifest.CONFIG_FILE, manifest.TOKENIZER_FILE])
def test_engine_directory_with_a_missing_file_is_a_config_error_that_names_it(engine_dir: Path, missing: str) -> None:
    (engine_dir / missing).unlink()

    with pytest.raises(ConfigError, match=missing):
        Gateway(CONFIG, engine_dir, None, Alone("unix:/nonexistent.sock"))


async def test_chat_template_that_does_not_parse_is_a_config_error(engine_dir: Path) -> None:
    (engine_dir / manifest.CHAT_TEMPLATE_FILE).write_text("{% for %}", encoding="utf-8")

    with pytest.raises(ConfigError, match="the chat template does not parse: line 1: "):
        await Gateway(CONFIG, engine_dir, None, Alone("unix:/nonexistent.sock")).start()


async def test_chat_that_its_template_takes_too_long_for_is_a_bad_request(
    engine_dir: Path, scheduler: FakeScheduler
) -> None:
    source = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (engine_dir / manifest.CHAT_TEMPLATE_FILE).write_text(source, encoding="utf-8")
    scheduler.script = answering([5], reason=LENGTH)

    async with running_gateway(engine_dir, scheduler.address) as gateway:
        answer = await exchange(gateway.http_port, post("/v1/chat/completions", {"messages": HELLO}))
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["param"]) == (400, "messages")
        assert error["message"] == "the model's chat template takes more than 2 s of CPU time on these messages"
        assert (await exchange(gateway.http_port, post("/v1/completions", {"prompt": "a"}))).status == 200
