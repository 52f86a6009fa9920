"""How the model's requests travel: over HTTP and over gRPC, the same of both wherever it can be."""

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2_grpc

from jetway.runtime.gateway.access import OPEN_ACCESS, Access
from jetway.runtime.gateway.auth import ApiKey, KeyRing
from jetway.runtime.gateway.placement import Caller
from jetway.runtime.triton.over_grpc import OPTIONS
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import FakeScheduler, accepted, answering, sampled
from tests.support.gateway import running_gateway
from tests.support.triton_backend import InferenceRequest, InferenceResponse, TritonError, TritonModelException
from tests.support.triton_model import TEXT, arrays, error_of, loaded, said, url_of

EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # the frame with which a server of HTTP/2 begins


async def test_a_large_prompt_goes_through_as_far_as_the_gateway_takes_it(
    engine_dir: Path, scheduler: FakeScheduler, scheme: str
) -> None:
    large = TEXT | {"text_input": np.array([[b"x" * 5000]], dtype=object)}
    async with (
        running_gateway(engine_dir, scheduler.address, max_request_bytes=4096) as gateway,
        loaded("ensemble", url_of(gateway, scheme)) as model,
    ):
        request = InferenceRequest(large)
        model.execute([request])
        error = error_of(await said(request))
    assert error.code == TritonError.INVALID_ARG
    assert "4096" in error.message


async def test_the_key_of_tritons_environment_is_sent(
    engine_dir: Path,
    scheduler: FakeScheduler,
    tokenizer: Tokenizer,
    scheme: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler.script = answering(tokenizer.encode("a", add_special_tokens=False).ids)
    key = ApiKey("acme", hashlib.sha256(b"secret").hexdigest(), Caller(tenant="acme"))
    access = Access(KeyRing([key]), OPEN_ACCESS.placer)
    without, with_it = InferenceRequest(TEXT), InferenceRequest(TEXT)
    async with running_gateway(engine_dir, scheduler.address, access) as gateway:
        async with loaded("ensemble", url_of(gateway, scheme)) as model:
            model.execute([without])
            refused = await said(without)
        monkeypatch.setenv("JETWAY_API_KEY", "secret")
        async with loaded("ensemble", url_of(gateway, scheme)) as model:
            model.execute([with_it])
            assert arrays(await said(with_it))["text_output"] == [b"hia"]
    message = "an API key is needed: Authorization: Bearer KEY"
    assert refused == InferenceResponse(error=TritonError(message, TritonError.INVALID_ARG))
    assert (await scheduler.adds.get()).tenant == "acme"


@pytest.mark.parametrize("key", ["secret\n", "sec ret", "s\x7f", "schlüssel"])
async def test_a_key_that_no_header_carries_is_refused_by_name_when_the_model_loads(
    scheme: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JETWAY_API_KEY", key)
    with pytest.raises(TritonModelException, match="^JETWAY_API_KEY must have visible ASCII characters only"):
        async with loaded("ensemble", f"{scheme}://host:1"):
            pass


async def fault_at(url: str) -> TritonError:
    """What a request ends with."""
    async with loaded("ensemble", url) as model:
        request = InferenceRequest(TEXT)
        model.execute([request])
        response = await said(request)
        while response is not None and response.error is None:
            response = await said(request)
    return error_of(response)


async def test_a_gateway_that_says_nothing_is_unavailable(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there for TCP, and as far as a connection of gRPC's needs, and no further."""
    monkeypatch.setattr("jetway.runtime.triton.over_http.SILENCE_LIMIT_S", 0.05)
    names = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    options = [(name, 25 if name in names else value) for name, value in OPTIONS]
    monkeypatch.setattr("jetway.runtime.triton.over_grpc.OPTIONS", options)

    async def fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EMPTY_SETTINGS if scheme == "grpc" else b"")
        await reader.read(-1)
        writer.close()
        left.set()

    left = asyncio.Event()
    server = await asyncio.start_server(fall_silent, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await fault_at(f"{scheme}://{address}")
        await left.wait()
    assert error.code == TritonError.UNAVAILABLE
    assert error.message.startswith(f"the connection to Jetway at {address} failed: ")


async def test_a_request_that_waits_is_heard_of_and_keeps_its_code(
    engine_dir: Path, scheduler: FakeScheduler, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP the comments that say so go before a status could."""
    monkeypatch.setattr("jetway.runtime.gateway.events.KEEP_ALIVE_S", 0.001)
    async with (
        running_gateway(engine_dir, scheduler.address) as gateway,
        loaded("ensemble", url_of(gateway, scheme)) as model,
    ):
        request = InferenceRequest(TEXT)
        model.execute([request])
        handle = (await scheduler.adds.get()).handle
        scheduler.send(accepted(handle))
        await asyncio.sleep(0.01)
        late = common_pb2.Error(code=common_pb2.ERROR_CODE_DEADLINE_EXCEEDED, message="late")
        scheduler.send(sampled(handle, [], common_pb2.FINISH_REASON_EXPIRED, late))
        error = error_of(await said(request))
    assert error == TritonError("Request timeout expired", TritonError.UNAVAILABLE)


@pytest.mark.parametrize(
    ("babbled", "message"),
    [("babble", "a fault of Jetway's model: JSONDecodeError"), ('data: {"a": 1}', "Jetway's answer has no end")],
)
async def test_what_is_no_answer_of_jetways_still_ends_the_request(babbled: str, message: str) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(babbled) + 2}\r\n\r\n{babbled}\n\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        error = await fault_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert error.code == TritonError.INTERNAL
    assert error.message.startswith(message)


@pytest.mark.parametrize(("status", "body"), [("404 Not Found", ""), ("502 Bad Gateway", "[]")])
async def test_another_servers_error_says_where_it_comes_from(status: str, body: str) -> None:
    """A proxy's, say."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await fault_at(f"http://{address}")
    code = TritonError.NOT_FOUND if status.startswith("404") else TritonError.UNAVAILABLE
    assert error == TritonError(f"Jetway at {address} says {status}: {body}", code)


class _Silent(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    async def ModelStreamInfer(self, request_iterator: Any, context: Any) -> None:
        """Ends at once, and well."""


@pytest.mark.parametrize("served", [True, False])
async def test_what_is_no_service_of_jetways_still_ends_the_request(served: bool) -> None:
    """A gateway without tritonclient does not serve the protocol."""
    server = grpc.aio.server()
    if served:
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Silent(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        error = await fault_at(f"grpc://{address}")
    finally:
        await server.stop(None)
    if served:
        assert error == TritonError("Jetway's answer has no end", TritonError.INTERNAL)
    else:
        assert error == TritonError(
            f"Jetway at {address} says UNIMPLEMENTED: Method not found!", TritonError.UNSUPPORTED
        )


@pytest.mark.parametrize("missing", ["tritonclient.grpc", "tritonclient.grpc._client"])
async def test_grpc_needs_all_of_tritonclient_and_http_does_not(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for module in ("jetway.runtime.triton.over_grpc", "tritonclient.grpc"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        TritonModelException, match=r"^grpc://host:1 needs tritonclient\[grpc\] in the environment of Triton"
    ):
        async with loaded("ensemble", "grpc://host:1"):
            pass
    async with loaded("ensemble", "http://host:1"):
        pass
