"""Triton's unary calls over gRPC: health, what is said of models, and ModelInfer."""

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import InferRequestedOutput, aio, service_pb2
from tritonclient.utils import InferenceServerException

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH, STOP, FakeScheduler, accepted, answering, queued, refusing, sampled
from tests.support.gateway import running_gateway
from tests.support.http import exchange, post, request
from tests.support.tokenizers import EOS, ids_of
from tests.support.triton import TRUE, client_of, raw_request, request_stream, text_inputs, texts, token_inputs


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def test_ready_once_a_call_can_start(triton: aio.InferenceServerClient, waiting_gateway: Gateway) -> None:
    models = ("tiny", "ensemble", "tensorrt_llm", "nope")
    assert await triton.is_server_live()
    assert await triton.is_server_ready()
    assert [await triton.is_model_ready(name) for name in models] == [True, True, True, False]
    assert not await triton.is_model_ready("ensemble", "2")
    async with client_of(waiting_gateway) as early:
        assert await early.is_server_live()
        assert not await early.is_server_ready()
        assert not await early.is_model_ready("ensemble")
        index = await early.get_model_repository_index()
        assert {model.state for model in index.models} == {"UNAVAILABLE"}


async def test_what_the_server_says_of_itself(triton: aio.InferenceServerClient) -> None:
    metadata = await triton.get_server_metadata()
    assert metadata.name == "jetway"
    assert not {"trace", "logging", "system_shared_memory", "cuda_shared_memory"} & set(metadata.extensions)
    assert {"binary_tensor_data", "statistics", "parameters", "model_configuration"} <= set(metadata.extensions)
    index = await triton.get_model_repository_index()
    assert [(model.name, model.version, model.state) for model in index.models] == [
        (name, "1", "READY") for name in ("tiny", "ensemble", "tensorrt_llm_bls", "tensorrt_llm")
    ]


async def test_metadata_tells_the_dialects_apart_by_their_inputs(
    triton: aio.InferenceServerClient, engine_dir: Path, scheduler: FakeScheduler
) -> None:
    ensemble = await triton.get_model_metadata("ensemble")
    tokens = await triton.get_model_metadata("tensorrt_llm")
    async with (
        running_gateway(engine_dir, scheduler.address, kserve_dialect="llmapi") as other,
        client_of(other) as client,
    ):
        llmapi = await client.get_model_metadata("tensorrt_llm")

    shapes = [
        {each.name: (each.datatype, list(each.shape)) for each in model.inputs} for model in (ensemble, tokens, llmapi)
    ]
    assert shapes[0]["text_input"] == ("BYTES", [-1, 1])
    assert shapes[0]["stop_words"] == ("BYTES", [-1, -1])
    assert shapes[1]["input_ids"] == ("INT32", [-1, -1])
    assert shapes[1]["stop_words_list"] == ("INT32", [-1, 2, -1])
    assert shapes[2]["text_input"] == ("BYTES", [-1])
    assert shapes[2]["sampling_param_max_tokens"] == ("INT32", [1])


async def test_the_configuration_has_the_levels_of_the_classes(triton: aio.InferenceServerClient) -> None:
    config = (await triton.get_model_config("ensemble")).config
    assert (config.name, config.backend, config.max_batch_size) == ("ensemble", "jetway", 1)
    assert config.model_transaction_policy.decoupled
    assert (config.dynamic_batching.priority_levels, config.dynamic_batching.default_priority_level) == (3, 2)
    assert {each.name for each in config.input if not each.optional} == {"text_input", "max_tokens"}


async def test_infer_text(triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "삼"), [*ids(tokenizer, "a"), *ids_of(tokenizer, EOS)], reason=STOP)

    result = await triton.infer(
        "ensemble",
        text_inputs("hé", 9, temperature=np.array([[0.5]], np.float32), top_k=np.array([[3]], np.int32),
                    seed=np.array([[8]], np.uint64), stop_words=np.array([["zz", ""]], dtype=object),
                    exclude_input_in_output=TRUE),
        request_id="mine",
    )  # fmt: skip

    assert texts(result) == ["삼a"]
    assert result.as_numpy("sequence_index")[0][0] == result.as_numpy("batch_index")[0][0] == 0
    response = result.get_response()
    assert (response.model_name, response.model_version, response.id) == ("ensemble", "1", "mine")
    add = await scheduler.adds.get()
    assert (list(add.prompt), add.max_tokens, add.request_id) == (tokenizer.encode("hé").ids, 9, "mine")
    assert (add.sampling.temperature, add.sampling.top_k, add.sampling.seed) == (0.5, 3, 8)
    assert (add.service_class, add.HasField("queue_timeout_ms")) == ("standard", False)


async def test_token_ids_are_those_of_every_other_edge(
    triton: aio.InferenceServerClient, stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = [*ids(tokenizer, "abc"), *ids_of(tokenizer, EOS)]
    scheduler.script = answering(tokens[:1], tokens[1:], reason=STOP)

    result = await triton.infer("tensorrt_llm", token_inputs([7, 8], exclude_input_in_output=TRUE))

    assert result.as_numpy("output_ids").tolist() == [[tokens]]
    add = await scheduler.adds.get()
    assert (list(add.prompt), add.max_tokens, add.sampling.temperature) == ([7, 8], 8, 0)


async def test_only_the_outputs_that_are_named(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    result = await triton.infer("ensemble", text_inputs(), outputs=[InferRequestedOutput("text_output")])
    assert [each.name for each in result.get_response().outputs] == ["text_output"]


async def test_elements_may_be_fields_of_the_message(
    triton_stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    message = raw_request()
    del message.raw_input_contents[:]
    message.inputs[0].contents.bytes_contents.append(b"ho")
    message.inputs[1].contents.int_contents.append(4)

    response = await triton_stub.ModelInfer(message)

    assert response.raw_output_contents[0] == b"\x03\x00\x00\x00hoa"
    assert (await scheduler.adds.get()).max_tokens == 4


async def test_statistics_count_what_was_answered(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    await triton.infer("ensemble", text_inputs())
    await triton.infer("ensemble", text_inputs())
    scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "full")
    with pytest.raises(InferenceServerException):
        await triton.infer("ensemble", text_inputs())

    [own] = (await triton.get_inference_statistics("ensemble")).model_stats
    every = (await triton.get_inference_statistics()).model_stats

    assert (own.name, own.version, own.inference_count) == ("ensemble", "1", 2)
    assert (own.inference_stats.success.count, own.inference_stats.fail.count) == (2, 1)
    assert own.inference_stats.success.ns > 0
    assert own.last_inference > 0
    assert [each.inference_count for each in every] == [0, 2, 0, 0]


async def test_statistics_tell_waiting_from_computing(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """Of two sequences the first to start ends the wait. What the scheduler does not say is not counted."""
    token = ids(tokenizer, "a")
    scheduler.script = answering(token)
    await triton.infer("ensemble", text_inputs())
    asked = text_inputs(num_return_sequences=np.array([[2]], np.int32), stream=TRUE)
    answers = triton.stream_infer(request_stream([{"model_name": "ensemble", "inputs": asked}]))
    scheduler.script = lambda add: [
        accepted(add.handle),
        *(queued(sampled(add.handle, token, LENGTH, index=index), wait_s) for index, wait_s in ((0, 1e-6), (1, 1.0))),
    ]
    _ = [answer async for answer in answers]

    [own] = (await triton.get_inference_statistics("ensemble")).model_stats

    stats = own.inference_stats
    parts = [stats.queue, stats.compute_input, stats.compute_infer]
    assert stats.success.count == 2
    assert [part.count for part in (*parts, stats.compute_output)] == [1, 1, 1, 0]
    assert stats.queue.ns == 1000


@pytest.mark.parametrize("name", ["SystemSharedMemoryStatus", "CudaSharedMemoryStatus", "TraceSetting", "LogSettings"])
async def test_what_is_not_served_is_unimplemented(
    triton_stub: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(triton_stub, name)(getattr(service_pb2, f"{name}Request")())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "shared memory, trace and logging are not served here"
    assert not caplog.records  # gRPC logs a traceback for what is not defined


async def test_what_cannot_be_read_is_counted_too(
    gateway: Gateway, triton: aio.InferenceServerClient, triton_stub: Any
) -> None:
    with pytest.raises(InferenceServerException):
        await triton.infer("nope", text_inputs())
    async for _ in triton.stream_infer(request_stream([{"model_name": "nope", "inputs": text_inputs()}])):
        pass
    for path in ("infer", "generate", "generate_stream"):
        assert (await exchange(gateway.http_port, post(f"/v2/models/nope/{path}", {}))).status == 404
        assert (await exchange(gateway.http_port, request("POST", f"/v2/models/tiny/{path}", b"{"))).status == 400
    metrics = (await exchange(gateway.http_port, request("GET", "/metrics"))).body.decode()
    assert 'jetway_requests_total{outcome="model_not_found"} 5.0' in metrics
    assert 'jetway_requests_total{outcome="invalid_argument"} 3.0' in metrics


@pytest.mark.parametrize("kind", ["inputs", "outputs", "parameters"])
async def test_more_parts_than_any_model_has_are_refused_unread(triton_stub: Any, kind: str) -> None:
    message = raw_request()
    parts = getattr(message, kind)
    for number in range(1025 - len(parts)):
        if kind == "parameters":
            parts[str(number)].int64_param = 1
        else:
            parts.add(name="text_output")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await triton_stub.ModelInfer(message)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == f"a request may have at most 1024 {kind}, not 1025"
