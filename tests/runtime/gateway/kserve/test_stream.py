"""ModelStreamInfer: what clients see of several requests on one stream."""

import asyncio
import logging
import queue
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tokenizers import Tokenizer
from tritonclient.grpc import InferResult, aio, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, sampled
from tests.support.gateway import running_gateway
from tests.support.tokenizers import words, write_engine
from tests.support.triton import (
    TRUE,
    client_of,
    inputs,
    is_final,
    opened,
    raw_request,
    request_stream,
    text_inputs,
    texts,
    token_inputs,
)

STREAM: dict[str, Any] = {"stream": TRUE}


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def ask(model: str, asked: Any, request_id: str = "", **more: Any) -> dict[str, Any]:
    """Of the aio client's stream."""
    return {"model_name": model, "inputs": asked, "request_id": request_id, **more}


async def results(triton: aio.InferenceServerClient, *requests: dict[str, Any]) -> list[InferResult]:
    """Of requests that all succeed."""
    got = []
    async for result, error in triton.stream_infer(request_stream(requests)):
        assert error is None
        got.append(result)
    return got


async def test_a_streamed_answer_is_deltas_and_the_last_says_so(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """A token inside a character has no response of its own; the end of the sequence has, so that clients learn of it."""
    text = ids(tokenizer, "ďáx")

    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield ask("ensemble", text_inputs("hi", **STREAM), "7")

    got = []
    stream = triton.stream_infer(requests())
    pending = asyncio.ensure_future(anext(stream))
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))
    scheduler.send(sampled(handle, text[:2]))
    got.append((await pending)[0])
    scheduler.send(sampled(handle, text[2:4]))
    got.append((await anext(stream))[0])
    scheduler.send(sampled(handle, text[4:], LENGTH))
    got += [result async for result, _ in stream]

    assert [(texts(each), is_final(each)) for each in got] == [(["ď"], False), (["á"], False), (["x"], True)]
    assert {each.get_response().id for each in got} == {"7"}


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_empty_final_response_where_it_is_asked_for(
    triton_stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer, streamed: bool
) -> None:
    scheduler.script = answering(ids(tokenizer, "ab"))
    message = raw_request("tiny", stream=streamed)
    message.parameters["triton_enable_empty_final_response"].bool_param = True

    async with opened(triton_stub) as stream:
        await stream.write(message)
        first, last = (await stream.read()).infer_response, (await stream.read()).infer_response

    assert not first.parameters["triton_final_response"].bool_param
    assert first.raw_output_contents[0].endswith(b"ab")
    assert last.parameters["triton_final_response"].bool_param
    assert (last.id, list(last.outputs)) == ("7", [])


async def test_each_sequence_has_its_own_responses(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = lambda add: [
        accepted(add.handle),
        *(sampled(add.handle, ids(tokenizer, text), LENGTH, index=index) for index, text in enumerate(["one", "two"])),
    ]
    two = np.array([[2]], np.int32)
    for more in (dict[str, Any](), STREAM):
        asked = text_inputs("hi", num_return_sequences=two, exclude_input_in_output=TRUE, **more)
        got = await results(triton, ask("ensemble", asked))
        assert {each.as_numpy("sequence_index")[0][0]: texts(each) for each in got} == {0: ["one"], 1: ["two"]}
        assert sorted(is_final(each) for each in got) == [False, True]
    assert (await scheduler.adds.get()).n == 2


async def test_token_ids_come_as_they_are_generated(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """The prompt is no part of a streamed answer."""
    scheduler.script = answering([11], [12], [13, 14])
    got = await results(triton, ask("tensorrt_llm", token_inputs([7, 8], streaming=TRUE)))
    assert [token for each in got for token in each.as_numpy("output_ids")[0][0].tolist()] == [11, 12, 13, 14]
    assert sum(each.as_numpy("sequence_length")[0][0] for each in got) == 4


async def test_llmapi_accumulates(engine_dir: Path, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = ids(tokenizer, "abc")
    asked = inputs(
        text_input=np.array([b"hi"], dtype=object), streaming=np.array([True]),
        sampling_param_max_tokens=np.array([3], np.int32), return_finish_reason=np.array([True]),
    )  # fmt: skip
    async with (
        running_gateway(engine_dir, scheduler.address, kserve_dialect="llmapi") as gateway,
        client_of(gateway) as triton,
    ):
        stream = triton.stream_infer(request_stream([ask("tensorrt_llm", asked)]))
        pending = asyncio.ensure_future(anext(stream))
        add = await scheduler.adds.get()
        scheduler.send(accepted(add.handle))
        scheduler.send(sampled(add.handle, tokens[:2]))
        got = [(await pending)[0]]
        scheduler.send(sampled(add.handle, tokens[2:], LENGTH))
        got += [result async for result, _ in stream]
        whole = inputs(text_input=np.array([b"hi"], dtype=object))
        scheduler.script = answering(tokens)
        unary = await triton.infer("tensorrt_llm", whole)
    assert [(texts(each), texts(each, "finish_reason")) for each in got] == [(["ab"], [""]), (["abc"], ["length"])]
    assert (add.max_tokens, add.sampling.temperature) == (3, 0)
    assert texts(unary) == ["hiabc"]
    assert (await scheduler.adds.get()).max_tokens == 32


async def test_requests_share_a_stream_and_errors_are_their_own(
    triton_stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    async with opened(triton_stub) as stream:
        for id in ("one", "two"):
            await stream.write(raw_request(id=id))
        await stream.write(raw_request("nope", id="three"))
        handles = [(await scheduler.adds.get()).handle for _ in range(2)]

        failed = await stream.read()
        for handle in handles:
            scheduler.send(accepted(handle))
        scheduler.send(
            sampled(handles[1], [], common_pb2.FINISH_REASON_FAILED,
                    common_pb2.Error(code=common_pb2.ERROR_CODE_ENGINE_FAILED, message="it broke"))
        )  # fmt: skip
        broken = await stream.read()
        scheduler.send(sampled(handles[0], ids(tokenizer, "!"), LENGTH))
        whole = await stream.read()
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK

    assert failed.error_message == "Request for unknown model: 'nope' is not found"
    assert broken.error_message == "it broke"
    for frame, name, id in ((failed, "nope", "three"), (broken, "ensemble", "two")):
        response = frame.infer_response
        assert (response.model_name, response.id) == (name, id)
        assert response.parameters["triton_final_response"].bool_param
        assert not response.outputs
    assert (whole.infer_response.id, whole.error_message) == ("one", "")
    assert whole.infer_response.raw_output_contents[0] == b"\x03\x00\x00\x00hi!"


async def test_an_error_is_a_status_where_the_client_wants_it(triton_stub: Any, scheduler: FakeScheduler) -> None:
    async with opened(triton_stub, (("triton_grpc_error", "true"),)) as stream:
        await stream.write(raw_request(id="lives"))
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        await stream.write(raw_request(text=b"\xff"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not UTF-8" in (caught.value.details() or "")
    assert await scheduler.cancels.get() == handle


async def test_closing_the_stream_cancels_all_of_its_requests(triton_stub: Any, scheduler: FakeScheduler) -> None:
    async with opened(triton_stub) as stream:
        for id in ("one", "two"):
            await stream.write(raw_request(id=id))
        handles = {(await scheduler.adds.get()).handle for _ in range(2)}
        for handle in handles:
            scheduler.send(accepted(handle))
    assert {await scheduler.cancels.get() for _ in range(2)} == handles


async def test_the_synchronous_client_streams_and_cancels(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    got: queue.Queue[tuple[InferResult | None, InferenceServerException | None]] = queue.Queue()

    def start() -> tritonclient.grpc.InferenceServerClient:
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{gateway.grpc_port}")
        client.start_stream(lambda result, error: got.put((result, error)))
        client.async_stream_infer("ensemble", text_inputs(**STREAM), request_id="7")
        return client

    client = await asyncio.to_thread(start)
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))
    scheduler.send(sampled(handle, ids(tokenizer, "a")))
    result, error = await asyncio.to_thread(got.get, timeout=10)
    assert result is not None
    assert (texts(result), error) == (["a"], None)

    await asyncio.to_thread(client.stop_stream, cancel_requests=True)

    assert await scheduler.cancels.get() == handle
    result, error = await asyncio.to_thread(got.get, timeout=10)
    assert error is not None
    assert (error.status(), error.message()) == ("StatusCode.CANCELLED", "Locally cancelled by application!")
    await asyncio.to_thread(client.close)


async def test_a_client_that_does_not_read_loses_its_stream(
    tmp_path: Path, scheduler: FakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes without having been told; of that nothing is logged."""
    engine_dir = write_engine(tmp_path, words("x" * (1 << 20)))
    async with (
        running_gateway(engine_dir, scheduler.address, stall_limit_s=0.2) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel,
        opened(service_pb2_grpc.GRPCInferenceServiceStub(channel)) as stream,
    ):
        for id in ("silent", "streamed"):
            await stream.write(raw_request(id=id, stream=True))
        handles = [(await scheduler.adds.get()).handle for _ in range(2)]
        for handle in handles:
            scheduler.send(accepted(handle))
        for _ in range(16):
            scheduler.send(sampled(handles[1], [0]))
            await asyncio.sleep(0)

        assert {await scheduler.cancels.get() for _ in range(2)} == set(handles)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
