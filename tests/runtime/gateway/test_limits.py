"""What one call may ask for, as configured, and what is refused before anything costs."""

import gzip
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering
from tests.support.gateway import running_gateway
from tests.support.http import connection, exchange, post

PATH = "/v1/completions"
LIMITS: dict[str, Any] = {
    "max_prompt_chars": 10,
    "max_prompts": 2,
    "max_n": 3,
    "max_logprobs": 4,
    "max_logit_bias": 1,
    "max_stop_strings": 2,
    "max_stop_chars": 5,
}


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (PATH, {"prompt": "x" * 11}, "prompt", "characters of a prompt may be at most 10 here, not 11"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 6}] * 2}, "messages", "characters of a prompt may be at most 10 here, not 12"),
        (PATH, {"prompt": ["a"] * 3}, "prompt", "prompts in a call may be at most 2 here, not 3"),
        (PATH, {"n": 4}, "n", "n may be at most 3 here, not 4"),
        (PATH, {"logprobs": 5}, "logprobs", "logprobs may be at most 4 here, not 5"),
        (PATH, {"logit_bias": {"1": 0, "2": 0}}, "logit_bias", "entries of logit_bias may be at most 1 here, not 2"),
        (PATH, {"stop": ["a", "b", "c"]}, "stop", "stop strings may be at most 2 here, not 3"),
        (PATH, {"stop": "x" * 6}, "stop", "characters of a stop string may be at most 5 here, not 6"),
    ],
)  # fmt: skip
async def test_more_than_the_settings_allow_is_refused_by_name(
    engine_dir: Path, scheduler: FakeScheduler, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    prompt = {} if "messages" in body else {"prompt": "a"}
    async with running_gateway(engine_dir, scheduler.address, **LIMITS) as gateway:
        answer = await exchange(gateway.http_port, post(path, prompt | body))

    error = json.loads(answer.body)["error"]
    assert (answer.status, error["param"], error["message"]) == (400, param, message)
    assert scheduler.adds.empty()


async def test_as_much_as_the_settings_allow_is_not(engine_dir: Path, scheduler: FakeScheduler) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    body = {
        "prompt": ["x" * 10] * 2,
        "n": 3,
        "logprobs": 4,
        "logit_bias": {"1": 0},
        "stop": ["x" * 5] * 2,
    }
    async with running_gateway(engine_dir, scheduler.address, **LIMITS) as gateway, connection(gateway.http_port) as c:
        c.writer.write(post(PATH, body))
        assert [(await scheduler.adds.get()).n for _ in range(2)] == [3, 3]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([{"role": "user", "content": ""}] * 20_000, "messages of a chat may be at most 512 here, not 20000"),
        ("x" * (32 * 512 + 1), "characters of a prompt may be at most 16384 here, not 16385"),
        ("x" * 512, "the prompt has 513 tokens; the engine's max_seq_len of 512 tokens leaves no room to generate"),
        ([5] * 512, "the prompt has 512 tokens; the engine's max_seq_len of 512 tokens leaves no room to generate"),
    ],
    ids=["far too many messages", "far too long", "too long once it is tokenized", "token ids"],
)
async def test_a_prompt_that_fits_no_engine_never_reaches_the_scheduler(
    gateway: Gateway, scheduler: FakeScheduler, prompt: Any, message: str
) -> None:
    path, field = ("/v1/chat/completions", "messages") if "messages" in message else (PATH, "prompt")
    answer = await exchange(gateway.http_port, post(path, {field: prompt}))

    assert (answer.status, json.loads(answer.body)["error"]["message"]) == (400, message)
    assert scheduler.adds.empty()


async def test_more_calls_than_may_be_open_are_refused_until_one_ends(
    engine_dir: Path, scheduler: FakeScheduler
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    async with running_gateway(engine_dir, scheduler.address, max_open_requests=1) as gateway:
        async with connection(gateway.http_port) as (_, writer):
            writer.write(post(PATH, {"prompt": "a"}))
            await scheduler.adds.get()

            answer = await exchange(gateway.http_port, post(PATH, {"prompt": "a"}))
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert json.loads(answer.body)["error"]["message"] == "1 calls are open, which is the limit; try again"
        await scheduler.cancels.get()
        scheduler.script = answering([5], reason=LENGTH)
        assert (await exchange(gateway.http_port, post(PATH, {"prompt": "a"}))).status == 200


class TestBombs:
    @pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
    async def test_compressed_bodies_are_refused_unread(self, gateway: Gateway, coding: str) -> None:
        body = gzip.compress(b'{"prompt": "' + b"a" * (1 << 20) + b'"}')
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-encoding: {coding}\r\ncontent-length: {len(body)}\r\n\r\n"
        answer = await exchange(gateway.http_port, head.encode() + body)

        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (415, "unsupported_media_type")

    async def test_a_body_as_it_is_may_say_so(self, gateway: Gateway, scheduler: FakeScheduler) -> None:
        scheduler.script = answering([5], reason=LENGTH)
        answer = await exchange(gateway.http_port, post(PATH, {"prompt": "a"}, "content-encoding: identity\r\n"))
        assert answer.status == 200

    async def test_compressed_grpc_messages_are_refused_where_they_become_too_large(
        self, stub: Any, scheduler: FakeScheduler
    ) -> None:
        bomb = inference_pb2.GenerateRequest(text="a" * (64 << 20))
        with pytest.raises(grpc.aio.AioRpcError, match="Decompressed message larger than max"):
            await stub.Generate(bomb, compression=grpc.Compression.Gzip)
        assert scheduler.adds.empty()

    async def test_large_metadata_is_refused(self, stub: Any, scheduler: FakeScheduler) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(inference_pb2.GenerateRequest(text="a"), metadata=(("x-bomb", "b" * 1_000_000),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert scheduler.adds.empty()

    async def test_large_grpc_messages_are_refused(self, stub: Any, scheduler: FakeScheduler) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(inference_pb2.GenerateRequest(text="a" * (5 << 20)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert scheduler.adds.empty()


async def test_grpc_names_the_field_as_http_does(engine_dir: Path, scheduler: FakeScheduler) -> None:
    async with (
        running_gateway(engine_dir, scheduler.address, **LIMITS) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel,
    ):
        stub: Any = inference_pb2_grpc.InferenceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(inference_pb2.GenerateRequest(text="a", stop=["a", "b", "c"]))
    metadata: dict[str, Any] = dict(caught.value.trailing_metadata())
    error = common_pb2.Error.FromString(metadata["jetway-error-bin"])
    assert (error.code, error.param) == (common_pb2.ERROR_CODE_INVALID_ARGUMENT, "stop")


async def test_more_grpc_connections_than_allowed_are_closed(engine_dir: Path, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=LENGTH)
    request = inference_pb2.GenerateRequest(text="a")
    async with running_gateway(engine_dir, scheduler.address, max_connections=1) as gateway:
        address = f"127.0.0.1:{gateway.grpc_port}"
        own = [("grpc.use_local_subchannel_pool", 1)]  # else both channels would share a connection
        async with grpc.aio.insecure_channel(address, own) as first, grpc.aio.insecure_channel(address, own) as second:
            stub: Any = inference_pb2_grpc.InferenceStub(first)
            await stub.Generate(request)
            other: Any = inference_pb2_grpc.InferenceStub(second)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await other.Generate(request, timeout=5.0)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await stub.Generate(request)
