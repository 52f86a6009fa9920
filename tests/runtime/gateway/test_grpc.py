"""jetway.v1.Inference over a plain gRPC channel: answers, statuses, cancellation, health and reflection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tokenizers import Tokenizer

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.support.fake_scheduler import ENGINE, LENGTH, STOP, FakeScheduler, accepted, answering, refusing, sampled
from tests.support.gateway import running_gateway
from tests.support.tokenizers import EOS, ids_of, words, write_engine

TEXT = inference_pb2.GenerateRequest(text="hi")


@pytest.fixture
async def channel(gateway: Gateway) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Any:
    return inference_pb2_grpc.InferenceStub(channel)


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def test_generate_from_text(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = [*ids(tokenizer, "삼"), *ids_of(tokenizer, EOS)]
    scheduler.script = answering(tokens, reason=STOP)
    request = inference_pb2.GenerateRequest(
        model="tiny",
        text="hi",
        max_tokens=9,
        request_id="mine",
        sampling=common_pb2.SamplingParams(
            temperature=0.5, top_k=3, logit_bias_tokens=[4], logit_bias_values=[-2], stop_token_ids=[6], seed=8
        ),
    )

    response = await stub.Generate(request)

    assert response == inference_pb2.GenerateResponse(
        request_id="mine",
        model="tiny",
        text="삼",
        token_ids=tokens,
        finish_reason=STOP,
        usage=inference_pb2.Usage(prompt_tokens=3, completion_tokens=4),
    )
    add = await scheduler.adds.get()
    assert (list(add.prompt), add.max_tokens, add.request_id) == (tokenizer.encode("hi").ids, 9, "mine")
    sampling = add.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.5, 3, 1, 8)
    assert (list(sampling.logit_bias_tokens), list(sampling.logit_bias_values)) == ([4], [-2])
    assert list(sampling.stop_token_ids) == [6]


async def test_generate_from_chat_and_from_token_ids(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "a"), reason=LENGTH)
    message = inference_pb2.ChatMessage(role="user", content="hello")
    chat = inference_pb2.ChatMessages(messages=[message])

    await stub.Generate(inference_pb2.GenerateRequest(chat=chat))
    await stub.Generate(inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds(ids=[7, 8])))

    prompt = "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    first, second = await scheduler.adds.get(), await scheduler.adds.get()
    assert list(first.prompt) == ids(tokenizer, prompt)
    assert list(second.prompt) == [7, 8]
    assert not second.HasField("max_tokens")
    assert first.sampling.seed != second.sampling.seed
    assert first.request_id != second.request_id


async def test_stream_says_text_and_tokens_and_ends_with_the_usage(
    stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = ids(tokenizer, "ďá")
    call = stub.GenerateStream(inference_pb2.GenerateRequest(text="hi", request_id="mine"))
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))

    deltas = []
    for number, token in enumerate(tokens, start=1):
        scheduler.send(sampled(handle, [token], LENGTH if number == len(tokens) else None))
        deltas.append(await call.read())

    assert deltas == [
        inference_pb2.GenerateDelta(request_id="mine", text="", token_ids=tokens[:1]),
        inference_pb2.GenerateDelta(request_id="mine", text="ď", token_ids=tokens[1:2]),
        inference_pb2.GenerateDelta(request_id="mine", text="", token_ids=tokens[2:3]),
        inference_pb2.GenerateDelta(
            request_id="mine",
            text="á",
            token_ids=tokens[3:],
            finish_reason=LENGTH,
            usage=inference_pb2.Usage(prompt_tokens=3, completion_tokens=4),
        ),
    ]
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_stop_string_ends_the_stream(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = ids(tokenizer, "one END two")
    scheduler.script = lambda add: [accepted(add.handle), sampled(add.handle, tokens)]

    deltas = [delta async for delta in stub.GenerateStream(inference_pb2.GenerateRequest(text="hi", stop=["END"]))]

    assert "".join(delta.text for delta in deltas) == "one "
    assert deltas[-1].finish_reason == STOP
    assert deltas[-1].usage.completion_tokens == len("one END")
    assert (await scheduler.finishes.get()).kept_tokens == len("one END")


@pytest.mark.parametrize(
    ("request_", "status", "param", "message"),
    [
        (inference_pb2.GenerateRequest(), "INVALID_ARGUMENT", "input", "the request has no input"),
        (inference_pb2.GenerateRequest(text="a", model="b"), "NOT_FOUND", "model", "the model 'b' is not served here"),
        (inference_pb2.GenerateRequest(text="a", max_tokens=0), "INVALID_ARGUMENT", "max_tokens", "max_tokens must be at least 1, not 0"),
        (inference_pb2.GenerateRequest(text="a", stop=[""]), "INVALID_ARGUMENT", "stop", "a stop string must have 1 to 1024 characters, not 0"),
        (inference_pb2.GenerateRequest(chat=inference_pb2.ChatMessages()), "INVALID_ARGUMENT", "messages", "messages is empty"),
        (
            inference_pb2.GenerateRequest(chat=inference_pb2.ChatMessages(messages=[inference_pb2.ChatMessage(role="x")])),
            "INVALID_ARGUMENT", "messages[0].role", "messages[0].role must be one of",
        ),
        (inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds()), "INVALID_ARGUMENT", "prompt", "the prompt is empty"),
        (
            inference_pb2.GenerateRequest(text="a", sampling=common_pb2.SamplingParams(temperature=float("nan"))),
            "INVALID_ARGUMENT", "temperature", "temperature must be in [0.0, 100.0], not nan",
        ),
        (
            inference_pb2.GenerateRequest(text="a", sampling=common_pb2.SamplingParams(logit_bias_tokens=[1])),
            "INVALID_ARGUMENT", "logit_bias", "logit_bias_tokens and logit_bias_values must have equal lengths, not 1 and 0",
        ),
        (
            inference_pb2.GenerateRequest(text="a", sampling=common_pb2.SamplingParams(logprobs=1)),
            "INVALID_ARGUMENT", "logprobs", "logprobs are not supported",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_wrong_request_is_a_status_and_the_whole_error_in_the_metadata(
    stub: Any,
    scheduler: FakeScheduler,
    method: str,
    request_: inference_pb2.GenerateRequest,
    status: str,
    param: str,
    message: str,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (stub.Generate(request_) if method == "Generate" else stub.GenerateStream(request_).read())

    metadata: dict[str, Any] = dict(caught.value.trailing_metadata())
    error = common_pb2.Error.FromString(metadata["jetway-error-bin"])
    assert caught.value.code() is grpc.StatusCode[status]
    assert caught.value.details() == error.message
    assert error.message.startswith(message)
    assert error.param == param
    assert scheduler.adds.empty()


async def test_refusal_of_the_scheduler_is_a_status(stub: Any, scheduler: FakeScheduler) -> None:
    scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "1024 requests wait, which is the limit")

    with pytest.raises(grpc.aio.AioRpcError, match="1024 requests wait") as caught:
        await stub.Generate(TEXT)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_failure_of_an_accepted_call_is_a_status_or_the_last_delta(stub: Any, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([5], reason=common_pb2.FINISH_REASON_FAILED)

    with pytest.raises(grpc.aio.AioRpcError, match="the engine failed") as caught:
        await stub.Generate(TEXT)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    [*_, last] = [delta async for delta in stub.GenerateStream(TEXT)]
    assert last.finish_reason == common_pb2.FINISH_REASON_FAILED
    assert last.error.code == common_pb2.ERROR_CODE_ENGINE_FAILED


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
@pytest.mark.parametrize("stage", ["waiting", "accepted"])
async def test_cancellation_cancels_the_call(stub: Any, scheduler: FakeScheduler, method: str, stage: str) -> None:
    call = getattr(stub, method)(TEXT)
    reading = asyncio.ensure_future(call if method == "Generate" else call.read())
    handle = (await scheduler.adds.get()).handle
    if stage == "accepted":
        scheduler.send(accepted(handle))

    call.cancel()

    assert await scheduler.cancels.get() == handle
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_client_that_reads_nothing_loses_its_own_call_only(tmp_path: Path, scheduler: FakeScheduler) -> None:
    engine_dir = write_engine(tmp_path, words("x" * (1 << 20)))
    prompt = inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds(ids=[0]))
    async with (
        running_gateway(engine_dir, scheduler.address, stall_limit_s=0.2) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel,
    ):
        stub: Any = inference_pb2_grpc.InferenceStub(channel)
        call = stub.GenerateStream(prompt)
        stalled = (await scheduler.adds.get()).handle
        scheduler.send(accepted(stalled))
        for _ in range(16):
            scheduler.send(sampled(stalled, [0]))
            await asyncio.sleep(0)

        assert await scheduler.cancels.get() == stalled
        scheduler.script = answering([0], reason=LENGTH)
        assert (await stub.Generate(prompt)).usage.completion_tokens == 1
        call.cancel()


async def test_models(stub: Any) -> None:
    response = await stub.ListModels(inference_pb2.ListModelsRequest())

    assert response == inference_pb2.ListModelsResponse(models=[inference_pb2.Model(id="tiny", engine=ENGINE)])


async def test_health_follows_the_scheduler(channel: grpc.aio.Channel, scheduler: FakeScheduler) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="jetway.v1.Inference"))
    status = health_pb2.HealthCheckResponse

    async def wait_for(expected: int) -> None:
        while (await watch.read()).status != expected:
            pass

    await wait_for(status.SERVING)
    scheduler.end_session()
    await wait_for(status.NOT_SERVING)
    await wait_for(status.SERVING)
    watch.cancel()


async def test_reflection_names_the_services(channel: Any) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))

    services = [service.name for service in (await call.read()).list_services_response.service]
    assert services == ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "jetway.v1.Inference"]
