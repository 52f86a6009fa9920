"""jetway.v1.Inference when it does not go well: statuses, errors in deltas, cancellation, clients that do not read."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, refused, sampled
from tests.support.gateway import running_gateway
from tests.support.tokenizers import words, write_engine

TEXT = inference_pb2.GenerateRequest(text="hi")


async def test_failure_of_one_choice_leaves_the_others(stub: Any, scheduler: FakeScheduler) -> None:
    scheduler.script = lambda add: [
        accepted(add.handle),
        sampled(add.handle, [5], common_pb2.FINISH_REASON_CANCELLED),
        sampled(add.handle, [6], LENGTH, index=1),
    ]

    first, second = [delta async for delta in stub.GenerateStream(inference_pb2.GenerateRequest(text="hi", n=2))]

    assert (first.index, first.error.code) == (0, common_pb2.ERROR_CODE_CANCELLED)
    assert (second.index, second.finish_reason, second.usage.completion_tokens) == (1, LENGTH, 2)


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
            inference_pb2.GenerateRequest(text="a", sampling=common_pb2.SamplingParams(logprobs=21)),
            "INVALID_ARGUMENT", "logprobs", "logprobs must be in [0, 20], not 21",
        ),
        (inference_pb2.GenerateRequest(text="a", n=0), "INVALID_ARGUMENT", "n", "n must be in [1, 128], not 0"),
        (inference_pb2.GenerateRequest(text="a", n=129), "INVALID_ARGUMENT", "n", "n must be in [1, 128], not 129"),
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


@pytest.mark.parametrize(
    "request_",
    [
        inference_pb2.GenerateRequest(text="a", model="é" * 500_000),
        inference_pb2.GenerateRequest(text="a", service_class="é" * 500_000),
        inference_pb2.GenerateRequest(
            chat=inference_pb2.ChatMessages(messages=[inference_pb2.ChatMessage(role="é" * 500_000)])
        ),
    ],
    ids=["model", "class", "role"],
)
async def test_metadata_does_not_grow_with_what_clients_send(
    stub: Any, request_: inference_pb2.GenerateRequest
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(request_)
    metadata: dict[str, Any] = dict(caught.value.trailing_metadata())
    assert len(metadata["jetway-error-bin"]) < 600
    assert "…" in (caught.value.details() or "")


async def test_refusal_of_the_scheduler_is_a_status(stub: Any, scheduler: FakeScheduler) -> None:
    error = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="1024 requests wait", retry_after_s=7)
    scheduler.script = lambda add: [refused(add.handle, error)]

    with pytest.raises(grpc.aio.AioRpcError, match="1024 requests wait") as caught:
        await stub.Generate(TEXT)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    metadata: dict[str, Any] = dict(caught.value.trailing_metadata())
    assert common_pb2.Error.FromString(metadata["jetway-error-bin"]) == error


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


async def test_client_that_reads_nothing_loses_its_own_call_only(
    tmp_path: Path, scheduler: FakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes without having been told; of that nothing is logged."""
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
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
