"""The model inside Triton: a stand-in for its Python backend on one side, a gateway on the other."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, refusing, sampled
from tests.support.gateway import running_gateway
from tests.support.triton_backend import InferenceRequest, InferenceResponse, TritonError
from tests.support.triton_model import STREAM, TEXT, arrays, error_of, loaded, said, url_of


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def test_text_streams_through(url: str, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    async with loaded("ensemble", url) as model:
        request = InferenceRequest(STREAM, "7")
        model.execute([request])
        add = await scheduler.adds.get()
        scheduler.send(accepted(add.handle))
        scheduler.send(sampled(add.handle, ids(tokenizer, "é")))
        first = await said(request)
        ended_early = request.sender.ended
        scheduler.send(sampled(add.handle, ids(tokenizer, "b"), LENGTH))
        second = await said(request)
    assert (list(add.prompt), add.max_tokens, add.request_id) == (tokenizer.encode("hi").ids, 8, "7")
    assert arrays(first) == {"text_output": ["é".encode()], "batch_index": [[0]], "sequence_index": [[0]]}
    assert arrays(second)["text_output"] == [b"b"]
    assert (ended_early, request.sender.ended) == (False, True)


async def test_token_ids_and_their_shapes(url: str, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([11, 12, 13])
    one = np.array([[1]], np.int32)
    inputs = {
        "input_ids": np.array([[7, 8]], np.int32), "input_lengths": 2 * one, "request_output_len": 3 * one,
        "stop_words_list": np.array([[[9, 9], [1, -1]]], np.int32), "exclude_input_in_output": np.array([[True]]),
    }  # fmt: skip
    async with loaded("tensorrt_llm", url) as model:
        request = InferenceRequest(inputs)
        model.execute([request])
        outputs = arrays(await said(request))
        assert request.sender.ended
    assert outputs == {
        "output_ids": [[[11, 12, 13]]], "sequence_length": [[3]], "batch_index": [[0]], "sequence_index": [[0]],
    }  # fmt: skip
    assert list((await scheduler.adds.get()).prompt) == [7, 8]


async def test_a_client_that_goes_away_cancels(url: str, scheduler: FakeScheduler) -> None:
    async with loaded("ensemble", url) as model:
        gone, stays = InferenceRequest(TEXT), InferenceRequest(TEXT)
        model.execute([gone])
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        model.execute([stays])
        gone.sender.cancelled = True
        assert await scheduler.cancels.get() == handle
        response = await said(gone)
        other = (await scheduler.adds.get()).handle
        scheduler.send(accepted(other))
        scheduler.send(sampled(other, [65], LENGTH))
        assert "text_output" in arrays(await said(stays))
    assert response == InferenceResponse(error=TritonError("Request cancelled by client", TritonError.CANCELLED))


async def test_triton_is_not_asked_about_a_request_that_has_ended(
    url: str, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """Here one ends between the list of those that run and the question."""
    asked, ended = threading.Event(), threading.Event()
    first, second = InferenceRequest(TEXT), InferenceRequest(TEXT)

    def hold() -> None:
        asked.set()
        ended.wait(10)

    async with loaded("ensemble", url) as model:
        model.execute([first, second])
        handles = [(await scheduler.adds.get()).handle for _ in range(2)]
        for request in (first, second):
            request.sender.when_asked = hold
        await asyncio.to_thread(asked.wait, 10)
        for handle in handles:
            scheduler.send(accepted(handle))
            scheduler.send(sampled(handle, ids(tokenizer, "a"), LENGTH))
        ends = [asyncio.create_task(said(request)) for request in (first, second)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)  # the other's question is open
        ended.set()
        assert [arrays(await end)["text_output"] for end in ends] == [[b"hia"], [b"hia"]]
        third = InferenceRequest(TEXT)
        again = threading.Event()
        third.sender.when_asked = again.set
        model.execute([third])
        await asyncio.to_thread(again.wait, 10)  # by then those before have had their turn
        third.sender.cancelled = True
        await said(third)
    assert not first.sender.asked_after_end
    assert not second.sender.asked_after_end


async def test_priority_and_timeout_go_along(url: str, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    """Triton shows a model the timeout but no priority: that comes as a parameter of Jetway's own."""
    scheduler.script = answering(ids(tokenizer, "a"))
    given = [
        InferenceRequest(TEXT, parameters={"jetway_priority": 3, "other": [1]}, timeout=250_000),
        InferenceRequest(TEXT, parameters={"jetway_timeout": 9000}, timeout=250_000),
        InferenceRequest(TEXT),
    ]
    async with loaded("ensemble", url) as model:
        adds = []
        for request in given:
            model.execute([request])
            adds.append(await scheduler.adds.get())
            await said(request)
    assert [(add.service_class, add.queue_timeout_ms) for add in adds] == [
        ("batch", 250),
        ("standard", 9),
        ("standard", 0),
    ]


async def test_errors_have_their_codes(url: str, scheduler: FakeScheduler) -> None:
    async def refused(inputs: dict[str, Any]) -> TritonError:
        request = InferenceRequest(inputs, "7")
        model.execute([request])
        return error_of(await said(request))

    async with loaded("ensemble", url) as model:
        missing = await refused({"text_input": TEXT["text_input"]})
        undecodable = await refused(TEXT | {"text_input": np.array([[b"\xff"]], dtype=object)})
        scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "full")
        full = await refused(TEXT)
    assert (missing.code, missing.message[:18]) == (TritonError.INVALID_ARG, "[request id: 7] ex")
    assert undecodable.code == TritonError.INVALID_ARG
    assert undecodable.message.endswith("inference input 'text_input' is not UTF-8: invalid start byte at byte 0")
    assert full == TritonError("[request id: 7] Exceeds maximum queue size", TritonError.UNAVAILABLE)


async def test_what_cannot_be_read_ends_its_request_and_keeps_no_place(url: str) -> None:
    """Else unloading would wait for ever."""
    async with loaded("ensemble", url) as model:
        request = InferenceRequest({"text_input": None})  # no array at all
        model.execute([request])
        error = error_of(await said(request))
    assert error.code == TritonError.INTERNAL
    assert error.message.startswith("a fault of Jetway's model: AttributeError: ")


async def test_what_is_no_text_ends_its_request_as_the_clients_fault(url: str) -> None:
    """Triton's JSON may be any bytes."""

    class Undecodable(InferenceRequest):
        def request_id(self) -> str:
            return b"a\xff".decode()

    async with loaded("ensemble", url) as model:
        request = Undecodable(TEXT)
        model.execute([request])
        error = error_of(await said(request))
    assert error == TritonError(
        "the id and the parameters of a request must be UTF-8, not b'a\\xff'", TritonError.INVALID_ARG
    )


async def test_jetway_may_be_restarted(
    engine_dir: Path, scheduler: FakeScheduler, tokenizer: Tokenizer, scheme: str
) -> None:
    async with running_gateway(engine_dir, scheduler.address) as first:
        ports: dict[str, Any] = {"port": first.http_port, "grpc_port": first.grpc_port}
        url = url_of(first, scheme)
        async with loaded("ensemble", url) as model:
            cut = InferenceRequest(STREAM)
            model.execute([cut])
            handle = (await scheduler.adds.get()).handle
            scheduler.send(accepted(handle))
            scheduler.send(sampled(handle, ids(tokenizer, "a")))
            assert arrays(await said(cut))["text_output"] == [b"a"]
            await first.stop(0.0)
            lost, refused = await said(cut), InferenceRequest(TEXT)
            model.execute([refused])
            nobody = await said(refused)

            async with running_gateway(engine_dir, scheduler.address, **ports):
                scheduler.script = answering(ids(tokenizer, "b"))
                again = InferenceRequest(TEXT)
                model.execute([again])
                assert arrays(await said(again))["text_output"] == [b"hib"]
    address = url.removeprefix(f"{scheme}://")
    assert error_of(lost)
    assert error_of(nobody).code == TritonError.UNAVAILABLE
    assert error_of(nobody).message.startswith(f"the connection to Jetway at {address} failed: ")


async def test_unloading_cancels_what_runs(url: str, scheduler: FakeScheduler) -> None:
    async with loaded("ensemble", url) as model:
        request = InferenceRequest(TEXT)
        model.execute([request])
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
    assert await scheduler.cancels.get() == handle
    assert await said(request) is not None
