"""The public client, blocking and asyncio, against a real gateway."""

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import jetway.client as jetway
from jetway.runtime.gateway import placement
from jetway.runtime.gateway.access import OPEN_ACCESS, Access
from jetway.runtime.gateway.auth import ApiKey, KeyRing
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import (
    ENGINE,
    LENGTH,
    STOP,
    FakeScheduler,
    accepted,
    answering,
    cached,
    refused,
    refusing,
    sampled,
    scored,
)
from tests.support.gateway import running_gateway
from tests.support.tokenizers import byte_level, write_engine


class Caller(Protocol):
    """Both clients behind one face, so that both pass the same tests."""

    async def generate(self, prompt: str | None = None, **params: Any) -> jetway.Completion: ...

    async def stream(self, prompt: str | None = None, **params: Any) -> list[jetway.Delta]: ...

    async def models(self) -> list[jetway.Model]: ...


class Blocking:
    """Each call of the blocking client in a thread of its own."""

    def __init__(self, client: jetway.Client) -> None:
        self.client = client

    async def generate(self, prompt: str | None = None, **params: Any) -> jetway.Completion:
        return await asyncio.to_thread(self.client.generate, prompt, **params)

    async def stream(self, prompt: str | None = None, **params: Any) -> list[jetway.Delta]:
        return await asyncio.to_thread(lambda: list(self.client.stream(prompt, **params)))

    async def models(self) -> list[jetway.Model]:
        return await asyncio.to_thread(self.client.models)


class Async:
    def __init__(self, client: jetway.AsyncClient) -> None:
        self.client = client

    async def generate(self, prompt: str | None = None, **params: Any) -> jetway.Completion:
        return await self.client.generate(prompt, **params)

    async def stream(self, prompt: str | None = None, **params: Any) -> list[jetway.Delta]:
        return [delta async for delta in self.client.stream(prompt, **params)]

    async def models(self) -> list[jetway.Model]:
        return await self.client.models()


TOKENIZER = byte_level()


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeScheduler]:
    async with FakeScheduler() as scheduler:
        yield scheduler


@pytest.fixture
async def address(tmp_path: Path, scheduler: FakeScheduler) -> AsyncIterator[str]:
    async with running_gateway(write_engine(tmp_path, TOKENIZER), scheduler.address) as gateway:
        yield f"127.0.0.1:{gateway.grpc_port}"


@pytest.fixture(params=["blocking", "async"])
async def caller(address: str, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    if request.param == "blocking":
        with jetway.Client(address) as client:
            yield Blocking(client)
    else:
        async with jetway.AsyncClient(address) as async_client:
            yield Async(async_client)


async def test_generate(caller: Caller, scheduler: FakeScheduler) -> None:
    scheduler.script = answering(ids("Pa"), ids("ris!"), reason=STOP)

    completion = await caller.generate("hi", max_tokens=7, temperature=0.5, seed=3, request_id="mine", stop="?")

    usage = jetway.Usage(prompt_tokens=3, completion_tokens=6, cached_tokens=0)
    choice = jetway.Choice(0, "Paris", ids("Paris!"), [], "stop")
    assert completion == jetway.Completion("mine", "tiny", [choice], usage)
    assert completion.text == "Paris"
    add = await scheduler.adds.get()
    assert (list(add.prompt), add.max_tokens) == (TOKENIZER.encode("hi").ids, 7)
    assert (add.sampling.temperature, add.sampling.seed) == (0.5, 3)


async def test_generate_from_messages_and_token_ids(caller: Caller, scheduler: FakeScheduler) -> None:
    scheduler.script = answering(ids("a"), reason=LENGTH)

    await caller.generate(messages=[{"role": "user", "content": "hello"}], logit_bias={4: -1.0}, stop_token_ids=[6])
    await caller.generate(token_ids=[7, 8], ignore_eos=True)

    first, second = await scheduler.adds.get(), await scheduler.adds.get()
    assert list(first.prompt) == ids("<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert (list(first.sampling.logit_bias_tokens), list(first.sampling.logit_bias_values)) == ([4], [-1])
    assert list(first.sampling.stop_token_ids) == [6]
    assert (list(second.prompt), second.sampling.ignore_eos) == ([7, 8], True)


async def test_several_choices_with_log_probabilities(caller: Caller, scheduler: FakeScheduler) -> None:
    [a, b] = ids("ab")
    scores = [common_pb2.TokenLogprobs(logprob=-0.5, top_tokens=[b, a], top_logprobs=[-0.25, -0.5])]
    scheduler.script = lambda add: [
        accepted(add.handle),
        scored(sampled(add.handle, [a], LENGTH), scores),
        cached(scored(sampled(add.handle, [b], LENGTH, index=1), scores), 2),
    ]

    completion = await caller.generate("hi", n=2, logprobs=2)
    deltas = await caller.stream("hi", n=2, logprobs=2)

    logprobs = [jetway.TokenLogprobs(-0.5, {b: -0.25, a: -0.5})]
    assert completion.choices == [
        jetway.Choice(0, "a", [a], logprobs, "length"),
        jetway.Choice(1, "b", [b], logprobs, "length"),
    ]
    assert [(delta.index, delta.text, delta.logprobs) for delta in deltas] == [(0, "a", logprobs), (1, "b", logprobs)]
    assert [delta.usage for delta in deltas] == [None, completion.usage]
    add = await scheduler.adds.get()
    assert (add.n, add.sampling.logprobs) == (2, 2)


async def test_overload_says_when_to_come_back(caller: Caller, scheduler: FakeScheduler) -> None:
    error = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="full", retry_after_s=7)
    scheduler.script = lambda add: [refused(add.handle, error)]

    with pytest.raises(jetway.Overloaded, match="full") as caught:
        await caller.generate("hi")
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, 7)


async def test_stream(caller: Caller, scheduler: FakeScheduler) -> None:
    scheduler.script = answering(*([token] for token in ids("ďá")), reason=LENGTH)

    deltas = await caller.stream("hi", request_id="mine")

    assert "".join(delta.text for delta in deltas) == "ďá"
    assert [token for delta in deltas for token in delta.token_ids] == ids("ďá")
    assert {delta.finish_reason for delta in deltas[:-1]} <= {None}
    assert (deltas[-1].finish_reason, deltas[-1].usage) == ("length", jetway.Usage(3, 4, 0))
    assert {delta.request_id for delta in deltas} == {"mine"}


async def test_class_priority_and_deadline_reach_the_scheduler(caller: Caller, scheduler: FakeScheduler) -> None:
    scheduler.script = answering(ids("a"), reason=LENGTH)

    await caller.generate("hi", service_class="batch", priority=4, deadline_ms=1500)

    add = await scheduler.adds.get()
    assert (add.service_class, add.priority, add.deadline_ms, add.tenant) == ("batch", 4, 1500, "")


async def test_tenant_and_key_go_with_every_call(tmp_path: Path, scheduler: FakeScheduler) -> None:
    scheduler.script = answering(ids("a"), reason=LENGTH)
    key = ApiKey("acme", hashlib.sha256(b"sk-acme").hexdigest(), placement.Caller(tenant="acme"))
    engine_dir = write_engine(tmp_path, byte_level())
    async with (
        running_gateway(engine_dir, scheduler.address) as gateway,
        jetway.AsyncClient(f"127.0.0.1:{gateway.grpc_port}", tenant="other") as client,
    ):
        await client.generate("hi")
        assert (await scheduler.adds.get()).tenant == "other"
    async with running_gateway(engine_dir, scheduler.address, Access(KeyRing([key]), OPEN_ACCESS.placer)) as gateway:
        address = f"127.0.0.1:{gateway.grpc_port}"
        async with jetway.AsyncClient(address, api_key="sk-acme") as client:
            await client.generate("hi")
            assert (await scheduler.adds.get()).tenant == "acme"
            assert [delta.finish_reason async for delta in client.stream("hi")] == ["length"]
            assert [model.id for model in await client.models()] == ["tiny"]
        async with jetway.AsyncClient(address) as client:
            with pytest.raises(jetway.Unauthenticated, match="an API key is needed"):
                await client.models()


async def test_models(caller: Caller) -> None:
    assert await caller.models() == [jetway.Model("tiny", ENGINE)]


@pytest.mark.parametrize(
    ("code", "expected", "retryable"),
    [
        (common_pb2.ERROR_CODE_INVALID_ARGUMENT, jetway.InvalidArgument, False),
        (common_pb2.ERROR_CODE_OVERLOADED, jetway.Overloaded, True),
        (common_pb2.ERROR_CODE_UNAVAILABLE, jetway.Unavailable, True),
        (common_pb2.ERROR_CODE_DEADLINE_EXCEEDED, jetway.DeadlineExceeded, False),
        (common_pb2.ERROR_CODE_ENGINE_FAILED, jetway.EngineFailed, False),
        (common_pb2.ERROR_CODE_CANCELLED, jetway.Cancelled, False),
        (common_pb2.ERROR_CODE_INTERNAL, jetway.Internal, False),
    ],
)
async def test_refusal_is_an_error_of_the_tree(
    caller: Caller,
    scheduler: FakeScheduler,
    code: common_pb2.ErrorCode.ValueType,
    expected: type[jetway.JetwayError],
    retryable: bool,
) -> None:
    scheduler.script = refusing(code, "no", "prompt")

    for call in (caller.generate, caller.stream):
        with pytest.raises(expected, match="no") as caught:
            await call("hi")
        assert (caught.value.param, caught.value.retryable) == ("prompt", retryable)


async def test_unknown_model(caller: Caller) -> None:
    with pytest.raises(jetway.ModelNotFound, match="'tiny' is") as caught:
        await caller.generate("hi", model="other")
    assert caught.value.param == "model"


async def test_failure_after_some_deltas_is_raised(caller: Caller, scheduler: FakeScheduler) -> None:
    scheduler.script = answering(ids("a"), [], reason=common_pb2.FINISH_REASON_FAILED)

    with pytest.raises(jetway.EngineFailed):
        await caller.stream("hi")


async def test_timeout_cancels_the_call(caller: Caller, scheduler: FakeScheduler) -> None:
    with pytest.raises(jetway.DeadlineExceeded):
        await caller.generate("hi", timeout_s=0.1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "exactly one of prompt, token_ids and messages"),
        ({"prompt": "a", "token_ids": [1]}, "exactly one of prompt, token_ids and messages"),
        ({"prompt": "a", "max_tokens": -1}, "out of range"),
        ({"prompt": "a", "temprature": 1}, "temprature"),
        ({"messages": [{"role": "user", "text": "a"}]}, "text"),
    ],
    ids=["none", "two", "negative", "unknown", "message"],
)
async def test_call_that_no_message_can_hold_is_refused_at_once(
    caller: Caller, scheduler: FakeScheduler, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(jetway.InvalidArgument, match=message):
        await caller.generate(**params)
    assert scheduler.adds.empty()


async def test_nobody_listens(unused_tcp_port: int) -> None:
    with jetway.Client(f"127.0.0.1:{unused_tcp_port}") as client, pytest.raises(jetway.Unavailable) as caught:
        client.generate("hi")
    assert caught.value.retryable


async def test_leaving_a_blocking_stream_cancels_the_call(address: str, scheduler: FakeScheduler) -> None:
    scheduler.script = lambda add: [accepted(add.handle), sampled(add.handle, ids("a"))]

    def read_one() -> str:
        with jetway.Client(address) as client:
            stream = client.stream("hi")
            for delta in stream:
                return delta.text
        return "nothing"

    assert await asyncio.to_thread(read_one) == "a"
    assert await scheduler.cancels.get() == (await scheduler.adds.get()).handle


async def test_closing_an_async_stream_cancels_the_call(address: str, scheduler: FakeScheduler) -> None:
    scheduler.script = lambda add: [accepted(add.handle), sampled(add.handle, ids("a"))]
    async with jetway.AsyncClient(address) as client:
        stream: Any = client.stream("hi")
        assert (await anext(stream)).text == "a"

        await stream.aclose()

        assert await scheduler.cancels.get() == (await scheduler.adds.get()).handle


def test_client_imports_nothing_of_the_servers() -> None:
    program = "import sys, jetway.client; print(*{name for name in sys.modules if name.startswith('jetway.')})"

    imported = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert {name for name in imported.split() if not name.startswith("jetway.v1")} == {
        "jetway.client",
        "jetway.client_channel",
        "jetway.client_errors",
        "jetway.client_messages",
    }
