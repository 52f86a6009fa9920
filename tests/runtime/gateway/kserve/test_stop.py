"""`stop`: a request that ends another one with the same id."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, sampled
from tests.support.gateway import running_gateway
from tests.support.triton import add_input, client_of, inputs, opened, raw_request, texts


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def stop_signal(id: str) -> Any:
    """As upstream's client sends it: what else it holds means nothing."""
    message = service_pb2.ModelInferRequest(model_name="tensorrt_llm", id=id)
    for name in ("input_ids", "input_lengths", "request_output_len"):
        add_input(message, name, "INT32", b"\x00" * 4)
    add_input(message, "stop", "BOOL", b"\x01")
    return message


async def test_it_ends_the_request_with_the_same_id(
    triton_stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """Whatever model runs it: what it has is its answer. The stop gets an empty success."""
    async with opened(triton_stub) as stream:
        await stream.write(raw_request(id="7"))
        await stream.write(raw_request(id="8"))
        handles = [(await scheduler.adds.get()).handle for _ in range(2)]
        for handle in handles:
            scheduler.send(accepted(handle))
            scheduler.send(sampled(handle, ids(tokenizer, "ab")))
        await stream.write(stop_signal("7"))
        frames = {frame.infer_response.model_name: frame for frame in [await stream.read(), await stream.read()]}
        assert await scheduler.cancels.get() == handles[0]
        scheduler.send(sampled(handles[1], ids(tokenizer, "c"), LENGTH))
        other = await stream.read()

    for frame in frames.values():
        assert (frame.error_message, frame.infer_response.id) == ("", "7")
        assert frame.infer_response.parameters["triton_final_response"].bool_param
    assert not frames["tensorrt_llm"].infer_response.outputs
    assert frames["ensemble"].infer_response.raw_output_contents[0][4:].startswith(b"hi")
    assert other.infer_response.raw_output_contents[0][4:] == b"hiabc"


async def test_it_may_follow_at_once(triton_stub: Any, scheduler: FakeScheduler) -> None:
    async with opened(triton_stub) as stream:
        await stream.write(raw_request(id="7"))
        await stream.write(stop_signal("7"))
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        frames = [await stream.read(), await stream.read()]
        assert await scheduler.cancels.get() == handle
    assert {frame.error_message for frame in frames} == {""}


async def test_an_id_that_is_gone_is_no_error_and_none_is(triton_stub: Any) -> None:
    response = await triton_stub.ModelInfer(stop_signal("gone"))
    assert (response.id, list(response.outputs)) == ("gone", [])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await triton_stub.ModelInfer(stop_signal(""))
    assert caught.value.details() == "A request id must be provided for request cancellation"


async def test_llmapi_answers_a_stop_with_cancelled(engine_dir: Path, scheduler: FakeScheduler) -> None:
    async with (
        running_gateway(engine_dir, scheduler.address, kserve_dialect="llmapi") as gateway,
        client_of(gateway) as triton,
    ):
        text = np.array([b"hi"], dtype=object)
        asked = inputs(text_input=text, return_finish_reason=np.array([True]))
        running = asyncio.ensure_future(triton.infer("tensorrt_llm", asked, request_id="7"))
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        with pytest.raises(InferenceServerException) as caught:
            await triton.infer("tensorrt_llm", inputs(text_input=text, stop=np.array([True])), request_id="7")
        assert texts(await running, "finish_reason") == ["cancelled"]
    assert (caught.value.status(), caught.value.message()) == (
        "StatusCode.CANCELLED",
        "Request cancelled by client",
    )
    assert await scheduler.cancels.get() == handle
