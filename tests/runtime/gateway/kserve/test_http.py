"""The paths under /v2 with tritonclient's HTTP client, which sends raw tensors, and with plain JSON."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import tritonclient.http
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import FakeScheduler, answering, refused, refusing
from tests.support.gateway import running_gateway
from tests.support.http import exchange, post, request
from tests.support.triton import parsed

T = TypeVar("T")
Client = tritonclient.http.InferenceServerClient
BODY: dict[str, Any] = {
    "id": "5",
    "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": [["hi"]]},
        {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [3]},
    ],
    "outputs": [{"name": "text_output"}],
}


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def with_client(gateway: Gateway, work: Callable[[Any], T]) -> T:
    """What `work` makes of tritonclient's HTTP client, in a thread: it blocks."""

    def run() -> T:
        with Client(f"127.0.0.1:{gateway.http_port}") as client:
            return work(client)

    return await asyncio.to_thread(run)


def http_inputs(*, binary: bool) -> list[Any]:
    text = tritonclient.http.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([["hé"]], dtype=object), binary_data=binary)
    max_tokens = tritonclient.http.InferInput("max_tokens", [1, 1], "INT32")
    max_tokens.set_data_from_numpy(np.array([[3]], np.int32), binary_data=binary)
    return [text, max_tokens]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
async def test_infer_with_tritonclient(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer, binary: bool, compression: str | None
) -> None:
    scheduler.script = answering(ids(tokenizer, "삼"))
    outputs = [tritonclient.http.InferRequestedOutput("text_output", binary_data=binary)]

    result = await with_client(
        gateway,
        lambda client: client.infer(
            "ensemble", http_inputs(binary=binary), outputs=outputs, request_id="7", priority=1, timeout=250_000,
            request_compression_algorithm=compression, response_compression_algorithm=compression,
        ),
    )  # fmt: skip

    assert [str(each, "utf-8") if binary else each for each in result.as_numpy("text_output")] == ["hé삼"]
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("7", "ensemble", "1")
    add = await scheduler.adds.get()
    assert (list(add.prompt), add.max_tokens) == (tokenizer.encode("hé").ids, 3)
    assert (add.service_class, add.queue_timeout_ms) == ("interactive", 250)


async def test_without_named_outputs_all_come_as_raw_tensors(
    gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    result = await with_client(gateway, lambda client: client.infer("tiny", http_inputs(binary=True)))
    assert [each["name"] for each in result.get_response()["outputs"]] == [
        "text_output",
        "batch_index",
        "sequence_index",
    ]
    assert result.as_numpy("sequence_index").tolist() == [[0]]


async def test_what_is_said_of_server_and_models(gateway: Gateway) -> None:
    def everything(client: Any) -> dict[str, Any]:
        return {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "models": [client.is_model_ready(name) for name in ("ensemble", "nope")],
            "server": client.get_server_metadata(),
            "metadata": client.get_model_metadata("ensemble", "1"),
            "config": client.get_model_config("tensorrt_llm"),
            "statistics": client.get_inference_statistics("ensemble"),
            "index": client.get_model_repository_index(),
        }

    said = await with_client(gateway, everything)

    assert (said["live"], said["ready"], said["models"]) == (True, True, [True, False])
    assert said["server"]["name"] == "jetway"
    assert said["metadata"]["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": [-1, 1]}
    assert said["config"]["input"][0] == {
        "name": "input_ids",
        "data_type": "TYPE_INT32",
        "dims": [-1],
        "optional": False,
    }
    assert said["statistics"]["model_stats"][0]["inference_stats"]["success"] == {"count": 0, "ns": 0}
    assert said["index"][0] == {"name": "tiny", "version": "1", "state": "READY"}


async def test_not_ready_without_a_scheduler(waiting_gateway: Gateway) -> None:
    for path, status in (("ready", 400), ("live", 200)):
        answer = await exchange(waiting_gateway.http_port, request("GET", f"/v2/health/{path}"))
        assert answer.status == status


async def test_infer_as_json(gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    answer = await exchange(gateway.http_port, post("/v2/models/ensemble/versions/01/infer", BODY))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert parsed(answer) == {
        "id": "5",
        "model_name": "ensemble",
        "model_version": "1",
        "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1], "data": ["hia"]}],
    }


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_is_never_more_than_the_limit_when_decompressed(
    engine_dir: Path, scheduler: FakeScheduler, encoding: str
) -> None:
    content = b" " * 1_000_000
    bomb = gzip.compress(content) if encoding == "gzip" else zlib.compress(content)
    headers = f"content-encoding: {encoding}\r\n"
    async with running_gateway(engine_dir, scheduler.address, max_request_bytes=10_000) as gateway:
        answer = await exchange(gateway.http_port, request("POST", "/v2/models/tiny/infer", bomb, headers))
    assert len(bomb) < 10_000
    assert (answer.status, parsed(answer)["error"]) == (
        413, "the body may have at most 10000 bytes; decompressed it has more",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "body", "status", "message"),
    [
        ("content-encoding: br\r\n", b"{}", 501, "Unsupported compression type"),
        ("content-encoding: gzip\r\n", b"{}", 400, "the body is not what its content-encoding gzip says"),
        ("content-encoding: gzip\r\n", gzip.compress(b"{}")[:-4], 400, "the body is not one whole gzip stream"),
        ("inference-header-content-length: 99\r\n", b"{}", 400, "inference header size should be in range (0, 2), got: 99"),
        ("inference-header-content-length: x\r\n", b"{}", 400, "inference-header-content-length must be a number"),
        ("", b"{}", 400, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ("", b"{", 400, "the body is not valid JSON"),
    ],
)  # fmt: skip
async def test_bodies_that_cannot_be_read(
    gateway: Gateway, headers: str, body: bytes, status: int, message: str
) -> None:
    answer = await exchange(gateway.http_port, request("POST", "/v2/models/tiny/infer", body, headers))
    assert answer.status == status
    assert parsed(answer)["error"].startswith(message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": [1]}, "an element of inference input 'text_input' is no BYTES"),
        ({"data": ["a", "b"]}, "expected 1 elements for inference input 'text_input', got 2"),
        ({"data": None}, "an element of inference input 'text_input' is no BYTES"),
        ({"datatype": "INT32"}, "inference input 'text_input' data-type is 'INT32', but model 'tiny' expects 'BYTES'"),
        ({"shape": [2, 1]}, "inference request batch-size must be <= 1 for 'tiny'"),
        ({"shape": [0, 1], "data": []}, "inference input 'text_input' of 'tiny' has an empty batch: [0,1]"),
        ({"shape": [1, 2**63]}, "input 'text_input' needs a shape and a datatype"),
        (
            {"shape": [1] * 9999},
            f"unexpected shape for input 'text_input' for model 'tiny'. Expected [-1,1], got [{'1,' * 9}",
        ),
        ({"parameters": {"shared_memory_region": "x"}}, "input 'text_input' is in shared memory, which is not served"),
        ({"parameters": {"many": 2**64}}, "parameter 'many' has invalid type"),
        ({"shape": [1, -1]}, "All input dimensions should be specified for input 'text_input' for model 'tiny'"),
        ({"name": "foo"}, "unexpected inference input 'foo' for model 'tiny'"),
        ({"shape": "x"}, "input 'text_input' needs a shape and a datatype"),
        ({"parameters": {"binary_data_size": 4}}, "input 'text_input' must have either 'data' or 'binary_data_size'"),
    ],
)
async def test_tensors_that_are_not_the_models(gateway: Gateway, changed: dict[str, Any], message: str) -> None:
    body = {"inputs": [BODY["inputs"][0] | changed, BODY["inputs"][1]]}
    answer = await exchange(gateway.http_port, post("/v2/models/tiny/infer", body))
    assert answer.status == 400
    assert len(answer.body) < 300  # gRPC has no room for a long one
    assert parsed(answer)["error"].removeprefix("[request id: <id_unknown>] ").startswith(message)


@pytest.mark.parametrize(
    ("raw", "sizes", "message"),
    [
        (b"\x02\x00\x00\x00hi", (99, 4), "binary_data_size of input 'text_input' must be in [0, 6]"),
        (b"\x02\x00\x00\x00hi\x03\x00\x00\x00!", (6, 4), "1 bytes follow the last input's"),
        (b"\x09\x00\x00\x00hi\x03\x00\x00\x00", (6, 4), "incomplete string data for inference input 'text_input'"),
        (b"\x02\x00\x00hi\x03\x00\x00\x00", (3, 6), "incomplete string length indicator for inference input"),
        (b"\x02\x00\x00\x00hi\x03\x00", (6, 2), "input byte size mismatch for input 'max_tokens'. Expected 4, got 2"),
    ],
)
async def test_raw_tensors_that_are_cut(gateway: Gateway, raw: bytes, sizes: tuple[int, int], message: str) -> None:
    inputs = [
        {"name": name, "datatype": datatype, "shape": [1, 1], "parameters": {"binary_data_size": size}}
        for name, datatype, size in (("text_input", "BYTES", sizes[0]), ("max_tokens", "INT32", sizes[1]))
    ]
    head = json.dumps({"inputs": inputs}).encode()
    headers = f"inference-header-content-length: {len(head)}\r\n"
    answer = await exchange(gateway.http_port, request("POST", "/v2/models/tiny/infer", head + raw, headers))
    assert answer.status == 400
    assert parsed(answer)["error"].removeprefix("[request id: <id_unknown>] ").startswith(message)


async def test_errors_are_tritons(gateway: Gateway, scheduler: FakeScheduler) -> None:
    def error_of(client: Any) -> InferenceServerException:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("tiny", http_inputs(binary=True), request_id="7")
        return caught.value

    scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "the queue is full")
    error = await with_client(gateway, error_of)
    assert (error.status(), error.message()) == ("503", "[request id: 7] Exceeds maximum queue size")
    for method, path, status, message in (
        ("GET", "/v2/models/nope", 404, "Request for unknown model: 'nope' is not found"),
        ("GET", "/v2/models/tiny/versions/2", 404, "Request for unknown model: 'tiny' version 2 is not found"),
        ("GET", "/v2/models/nope/ready", 400, "Model version not ready"),
        ("GET", "/v2/nothing", 404, "Not Found"),
        ("GET", "/v2/models/tiny/infer", 405, "Method Not Allowed"),
        ("GET", "/v2/systemsharedmemory/status", 501, "/v2/systemsharedmemory/status is not served here"),
        ("GET", "/v2/trace/setting", 501, "/v2/trace/setting is not served here"),
        ("GET", "/v2/models/tiny/trace/setting", 501, "/v2/models/tiny/trace/setting is not served here"),
        ("GET", "/v2/logging", 501, "/v2/logging is not served here"),
        ("POST", "/v2/repository/models/tiny/load", 503,
         "explicit model load / unload is not allowed if polling is enabled"),
    ):  # fmt: skip
        answer = await exchange(gateway.http_port, request(method, path))
        assert (answer.status, parsed(answer)) == (status, {"error": message})


async def test_a_full_queue_says_when_to_come_back(gateway: Gateway, scheduler: FakeScheduler) -> None:
    full = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="full", retry_after_s=9)
    scheduler.script = lambda add: [refused(add.handle, full)]
    answer = await exchange(gateway.http_port, post("/v2/models/tiny/generate", {"text_input": "hi", "max_tokens": 1}))
    assert (answer.status, answer.headers["retry-after"]) == (503, "9")
