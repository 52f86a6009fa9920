"""/generate and /generate_stream: bodies of plain JSON."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, refused, sampled
from tests.support.gateway import running_gateway
from tests.support.http import connection, events_of, exchange, post, read_head
from tests.support.tokenizers import words, write_engine
from tests.support.triton import generate, parsed

ASK: dict[str, Any] = {"text_input": "hi", "max_tokens": 8, "exclude_input_in_output": True}
SEVERAL = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of "
    "responses"
)


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def failing(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
    error = common_pb2.Error(code=common_pb2.ERROR_CODE_ENGINE_FAILED, message="it failed")
    return [accepted(add.handle), sampled(add.handle, [], common_pb2.FINISH_REASON_FAILED, error)]


async def events(gateway: Gateway, path: str, body: dict[str, Any]) -> tuple[int, str, str]:
    """Status, type and body of what may be a stream."""
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(post(f"/v2/models/{path}", body, "connection: close\r\n"))
        head = await read_head(reader)
        content = await reader.read()
    if "transfer-encoding" in head.headers:
        content = b"".join(content.split(b"\r\n")[1::2])
    return head.status, head.headers["content-type"], content.decode()


async def test_a_number_or_a_string_for_each_tensor_of_one_element(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "ab"))
    body = ASK | {"temperature": 0.5, "top_k": 3, "stop_words": ["x", "y"], "id": "9"}
    for path in ("ensemble/generate", "tensorrt_llm_bls/versions/1/generate"):
        answer = await generate(gateway, path, body)
        assert answer.status == 200
        assert parsed(answer) == {
            "id": "9", "model_name": path.split("/")[0], "model_version": "1", "text_output": "ab",
            "batch_index": 0, "sequence_index": 0,
        }  # fmt: skip
    add = await scheduler.adds.get()
    assert (add.sampling.temperature, add.max_tokens, add.request_id) == (0.5, 8, "9")


async def test_token_ids_in_lists(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.script = answering([11, 12])
    answer = await generate(
        gateway, "tensorrt_llm/generate",
        {"input_ids": [7, 8], "input_lengths": 2, "request_output_len": [[2]], "exclude_input_in_output": True},
    )  # fmt: skip
    assert (parsed(answer)["output_ids"], parsed(answer)["sequence_length"]) == ([11, 12], 2)
    assert list((await scheduler.adds.get()).prompt) == [7, 8]


async def test_a_stream_is_events_without_an_end_marker(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    async with connection(gateway.http_port) as (reader, writer):
        writer.write(
            post("/v2/models/tiny/generate_stream", ASK | {"stream": True, "id": "x"}, "connection: close\r\n")
        )
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        scheduler.send(sampled(handle, ids(tokenizer, "a")))
        head = await read_head(reader)
        first = await reader.readuntil(b"\n\n")
        scheduler.send(sampled(handle, ids(tokenizer, "b"), LENGTH))
        rest = await reader.read()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    lines = [line for line in (first + rest).decode().splitlines() if line.startswith("data: ")]
    assert [json.loads(line.removeprefix("data: ")) for line in lines] == [
        {
            "id": "x",
            "model_name": "tiny",
            "model_version": "1",
            "text_output": text,
            "batch_index": 0,
            "sequence_index": 0,
        }
        for text in ("a", "b")
    ]
    assert rest.endswith(b"\n\n\r\n0\r\n\r\n")


async def test_a_client_that_goes_away_cancels_its_request(gateway: Gateway, scheduler: FakeScheduler) -> None:
    """Also where it waits for the whole, which Triton does not see."""
    for path in ("tiny/generate_stream", "tiny/generate"):
        async with connection(gateway.http_port) as (_, writer):
            writer.write(post(f"/v2/models/{path}", ASK))
            handle = (await scheduler.adds.get()).handle
            scheduler.send(accepted(handle))
        assert await scheduler.cancels.get() == handle


async def test_an_error_in_the_middle_of_a_stream_is_its_last_event(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    running = asyncio.ensure_future(events(gateway, "tiny/generate_stream", ASK | {"stream": True}))
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))
    scheduler.send(sampled(handle, ids(tokenizer, "a")))
    scheduler.send(
        sampled(handle, [], common_pb2.FINISH_REASON_EXPIRED,
                common_pb2.Error(code=common_pb2.ERROR_CODE_DEADLINE_EXCEEDED, message="late"))
    )  # fmt: skip
    _, _, body = await running
    assert body.endswith('data: {"error":"Request timeout expired"}\n\n')


async def test_comments_say_that_a_request_waits_and_settle_the_status(
    gateway: Gateway, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the beginning: here the scheduler has not even accepted it."""
    monkeypatch.setattr("jetway.runtime.gateway.events.KEEP_ALIVE_S", 0.005)
    async with connection(gateway.http_port) as (reader, writer):
        body = ASK | {"jetway_final_response": True}
        writer.write(post("/v2/models/tiny/generate_stream", body, "connection: close\r\n"))
        handle = (await scheduler.adds.get()).handle
        head = await read_head(reader)
        await reader.readuntil(b": keep-alive\n\n")
        full = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="full")
        scheduler.send(refused(handle, full))
        rest = await reader.read()
    assert head.status == 200
    assert (
        b'data: {"error":"[request id: <id_unknown>] Exceeds maximum queue size","jetway_error_code":"UNAVAILABLE"}'
        in rest
    )


async def test_a_client_that_reads_nothing_loses_its_request(tmp_path: Path, scheduler: FakeScheduler) -> None:
    engine_dir = write_engine(tmp_path, words("x" * (1 << 20)))
    async with (
        running_gateway(engine_dir, scheduler.address, stall_limit_s=0.2) as gateway,
        connection(gateway.http_port, receive_buffer_bytes=4096) as (_, writer),
    ):
        writer.write(post("/v2/models/tiny/generate_stream", ASK | {"stream": True}))
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        for _ in range(16):
            scheduler.send(sampled(handle, [0]))
            await asyncio.sleep(0)
        assert await scheduler.cancels.get() == handle


class TestAsTriton:
    """Each value was measured on Triton 2.51."""

    async def test_several_responses_where_there_can_be_one(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        for more in ({"stream": True}, {"num_return_sequences": 2}):
            answer = await generate(gateway, "ensemble/generate", ASK | more)
            assert (answer.status, parsed(answer)) == (200, {"error": SEVERAL})
        answer = await exchange(
            gateway.http_port,
            post("/v2/models/tiny/infer", {"inputs": [
                {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["hi"]},
                {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [3]},
                {"name": "stream", "datatype": "BOOL", "shape": [1, 1], "data": [True]},
            ]}),
        )  # fmt: skip
        message = "HTTP end point doesn't support models with decoupled transaction policy"
        assert (answer.status, parsed(answer)) == (501, {"error": message})
        assert scheduler.adds.empty()

    async def test_an_error_first(self, gateway: Gateway, scheduler: FakeScheduler) -> None:
        scheduler.script = failing
        answer = await generate(gateway, "tiny/generate", ASK)
        assert (answer.status, parsed(answer)) == (400, {"error": "it failed"})
        assert await events(gateway, "tiny/generate_stream", ASK) == (
            400, "text/event-stream; charset=utf-8", 'data: {"error":"it failed"}\n\n',
        )  # fmt: skip
        status, kind, body = await events(gateway, "nope/generate_stream", ASK)
        assert (status, kind, json.loads(body)) == (
            404, "application/json", {"error": "Request for unknown model: 'nope' is not found"},
        )  # fmt: skip

    async def test_the_one_response_of_a_request_that_does_not_stream(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        scheduler.script = answering(ids(tokenizer, "a"), ids(tokenizer, "b"))
        _, _, body = await events(gateway, "tiny/generate_stream", ASK)
        assert [json.loads(line[6:])["text_output"] for line in body.splitlines() if line] == ["ab"]

    async def test_other_keys_are_parameters_of_simple_types(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        scheduler.script = answering(ids(tokenizer, "a"))
        taken = {"foo": 1, "bar": 2.5, "b": True, "s": "x", "triton_foo": 1, "parameters": {"foo": 1}}
        assert (await generate(gateway, "tiny/generate", ASK | taken)).status == 200
        for value in ([1], {"a": 1}, None):
            answer = await generate(gateway, "tiny/generate", ASK | {"foo": value})
            assert (answer.status, parsed(answer)["error"]) == (
                400, "parameter 'foo' has invalid type. It should be either 'int', 'bool', or 'string'.",
            )  # fmt: skip

    async def test_an_id_is_a_string_and_comes_back(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        scheduler.script = answering(ids(tokenizer, "a"))
        given = "any text, ümlauts too"
        answer = await generate(gateway, "tiny/generate", ASK | {"id": given}, "triton-request-id: header\r\n")
        assert parsed(answer)["id"] == given
        answer = await generate(gateway, "tiny/generate", ASK, "triton-request-id: header\r\n")
        assert "id" not in parsed(answer)
        answer = await generate(gateway, "tiny/generate", ASK | {"id": 7})
        message = "Unable to parse 'id': attempt to access JSON non-string as string"
        assert (answer.status, parsed(answer)) == (500, {"error": message})

    async def test_priority_and_timeout_mean_nothing_here(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        scheduler.script = answering(ids(tokenizer, "a"))
        for more in ({"priority": 1, "timeout": 5}, {"parameters": {"priority": 3, "timeout": -1}}):
            assert (await generate(gateway, "tiny/generate", ASK | more)).status == 200
            add = await scheduler.adds.get()
            assert (add.service_class, add.HasField("queue_timeout_ms")) == ("standard", False)

    async def test_jetways_own_names_for_them_do(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        scheduler.script = answering(ids(tokenizer, "a"))
        own = {"jetway_priority": 1, "jetway_timeout": 5000}
        for more in (own, {"parameters": own}):
            assert (await generate(gateway, "tiny/generate", ASK | more)).status == 200
            add = await scheduler.adds.get()
            assert (add.service_class, add.queue_timeout_ms) == ("interactive", 5)

    async def test_the_last_event_says_so_where_it_is_asked_to(
        self, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
    ) -> None:
        scheduler.script = answering(ids(tokenizer, "a"))
        for asked, said in ((True, True), (False, None), (1, None)):
            body = ASK | {"jetway_final_response": asked}
            [event] = await events_of(gateway.http_port, "/v2/models/tiny/generate_stream", body)
            assert json.loads(event).get("jetway_final_response") is said

    @pytest.mark.parametrize("body", [{"max_tokens": "3"}, {"text_input": 3}, {"max_tokens": 3.5}, {"stream": None}])
    async def test_values_of_another_type_are_refused(self, gateway: Gateway, body: dict[str, Any]) -> None:
        """Triton calls them a fault (500); they are the client's."""
        assert (await generate(gateway, "tiny/generate", ASK | body)).status == 400

    async def test_a_required_tensor_is_missing(self, gateway: Gateway) -> None:
        answer = await generate(gateway, "tiny/generate", {"text_input": "hi"})
        assert answer.status == 400
        assert "but missing required input(s) ['max_tokens']" in parsed(answer)["error"]
