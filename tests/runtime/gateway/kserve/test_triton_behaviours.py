"""What a client of Triton meets over gRPC: each message and code was measured on Triton 2.51."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import aio, service_pb2
from tritonclient.utils import InferenceServerException

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2
from tests.support.fake_scheduler import FakeScheduler, accepted, answering, refusing, sampled
from tests.support.http import exchange, request
from tests.support.triton import TRUE, add_input, raw_request, text_inputs

RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
    "'triton_' are allowed: triton_enable_empty_final_response"
)
Bend = Callable[[Any], Any]  # changes the message


async def refusal(call: Any, message: Any) -> tuple[str, str]:
    """Status and message of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(message)
    return caught.value.code().name, caught.value.details() or ""


def parameter(name: str, kind: str, value: object) -> Bend:
    return lambda message: setattr(message.parameters[name], kind, value)


@pytest.mark.parametrize(
    ("bend", "status", "message"),
    [
        (lambda m: setattr(m, "model_name", "nope"), "NOT_FOUND", "Request for unknown model: 'nope' is not found"),
        (lambda m: setattr(m, "model_version", "2"), "NOT_FOUND",
         "Request for unknown model: 'ensemble' version 2 is not found"),
        (lambda m: setattr(m, "model_version", "x"), "INVALID_ARGUMENT",
         "failed to get model version from specified version string 'x', version should be an integral value > 0"),
        (lambda m: add_input(m, "stream", "BOOL", b"\x01"), "UNIMPLEMENTED",
         "ModelInfer RPC doesn't support models with decoupled transaction policy"),
        (lambda m: m.inputs[0].contents.bytes_contents.append(b"x"), "INVALID_ARGUMENT",
         "contents field must not be specified when using raw_input_contents for 'text_input' for model 'ensemble'"),
        (lambda m: m.raw_input_contents.pop(), "INVALID_ARGUMENT",
         "unable to find data for input tensor 'max_tokens' for model 'ensemble' in request."),
        (lambda m: setattr(m.inputs[1], "datatype", "INT64"), "INVALID_ARGUMENT",
         "[request id: 7] inference input 'max_tokens' data-type is 'INT64', but model 'ensemble' expects 'INT32'"),
        (lambda m: m.inputs[0].shape.__setitem__(0, 2), "INVALID_ARGUMENT",
         "[request id: 7] inference request batch-size must be <= 1 for 'ensemble'"),
        (lambda m: m.outputs.add(name="nope"), "INVALID_ARGUMENT",
         "[request id: 7] unexpected inference output 'nope' for model 'ensemble'"),
        (parameter("priority", "int64_param", -1), "INVALID_ARGUMENT",
         "invalid value for 'priority', expected value >= 0."),
        (parameter("priority", "string_param", "1"), "INVALID_ARGUMENT",
         "invalid value type for 'priority' parameter, expected int64_param or uint64_param."),
        (parameter("priority", "bool_param", True), "INVALID_ARGUMENT",
         "invalid value type for 'priority' parameter, expected int64_param or uint64_param."),
        (parameter("timeout", "string_param", "1"), "INVALID_ARGUMENT",
         "invalid value type for 'timeout' parameter, expected int64_param."),
        (parameter("triton_foo", "bool_param", True), "INVALID_ARGUMENT",
         RESERVED),
        (parameter("triton_enable_empty_final_response", "string_param", "x"), "INVALID_ARGUMENT",
         "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."),
    ],
)  # fmt: skip
async def test_requests_that_are_refused(triton_stub: Any, bend: Bend, status: str, message: str) -> None:
    asked = raw_request()
    bend(asked)
    assert await refusal(triton_stub.ModelInfer, asked) == (status, message)


async def test_repository_calls_that_are_refused(triton_stub: Any) -> None:
    no_loading = "explicit model load / unload is not allowed if polling is enabled"
    load = service_pb2.RepositoryModelLoadRequest(model_name="tiny")
    assert await refusal(triton_stub.RepositoryModelLoad, load) == ("UNAVAILABLE", no_loading)
    unload = service_pb2.RepositoryModelUnloadRequest(model_name="tiny")
    assert await refusal(triton_stub.RepositoryModelUnload, unload) == ("UNAVAILABLE", no_loading)
    index = service_pb2.RepositoryIndexRequest(repository_name="x")
    assert await refusal(triton_stub.RepositoryIndex, index) == (
        "UNIMPLEMENTED", "'repository_name' specification is not supported",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("priority", "service_class"),
    [(0, "standard"), (1, "interactive"), (2, "standard"), (3, "batch"), (99, "standard")],
)
async def test_levels_and_those_beyond_the_last(
    triton: aio.InferenceServerClient, gateway: Gateway, scheduler: FakeScheduler, tokenizer: Tokenizer,
    priority: int, service_class: str,
) -> None:  # fmt: skip
    """A level that is none becomes the default in silence; /metrics counts it."""
    scheduler.script = answering(tokenizer.encode("a", add_special_tokens=False).ids)
    await triton.infer("ensemble", text_inputs(), priority=priority)
    assert (await scheduler.adds.get()).service_class == service_class
    metrics = (await exchange(gateway.http_port, request("GET", "/metrics"))).body.decode()
    assert f"jetway_remapped_priorities_total {float(priority == 99)}" in metrics


async def test_the_timeout_bounds_the_queue_in_microseconds(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(tokenizer.encode("a", add_special_tokens=False).ids)
    for timeout in (100_000, 1, -1, 0):
        await triton.infer("ensemble", text_inputs(), timeout=timeout)
    adds = [await scheduler.adds.get() for _ in range(4)]
    assert [add.queue_timeout_ms if add.HasField("queue_timeout_ms") else None for add in adds] == [100, 1, None, None]


async def test_what_does_not_fit_the_queue_and_what_waits_there_too_long(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler
) -> None:
    scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "class standard may queue 1 requests")
    for request_id, label in (("q3", "q3"), ("", "<id_unknown>")):
        with pytest.raises(InferenceServerException) as caught:
            await triton.infer("ensemble", text_inputs(), request_id=request_id)
        assert (caught.value.status(), caught.value.message()) == (
            "StatusCode.UNAVAILABLE", f"[request id: {label}] Exceeds maximum queue size",
        )  # fmt: skip
    late = common_pb2.Error(
        code=common_pb2.ERROR_CODE_DEADLINE_EXCEEDED, message="not started after 0.1 s in the queue"
    )
    scheduler.script = lambda add: [
        accepted(add.handle), sampled(add.handle, [], common_pb2.FINISH_REASON_EXPIRED, late)
    ]  # fmt: skip
    with pytest.raises(InferenceServerException) as caught:
        await triton.infer("ensemble", text_inputs(), timeout=100_000)
    assert (caught.value.status(), caught.value.message()) == ("StatusCode.UNAVAILABLE", "Request timeout expired")


async def test_a_client_that_gives_up_cancels_its_request(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    with pytest.raises(InferenceServerException) as caught:
        await triton.infer("ensemble", text_inputs(exclude_input_in_output=TRUE), client_timeout=0.05)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert await scheduler.cancels.get() == (await scheduler.adds.get()).handle


async def test_rejections_are_counted(
    triton: aio.InferenceServerClient, gateway: Gateway, scheduler: FakeScheduler
) -> None:
    """Triton's own failure counters leave queue-full rejections out."""
    scheduler.script = refusing(common_pb2.ERROR_CODE_OVERLOADED, "full")
    with pytest.raises(InferenceServerException):
        await triton.infer("ensemble", text_inputs())
    metrics = (await exchange(gateway.http_port, request("GET", "/metrics"))).body.decode()
    assert 'jetway_requests_total{outcome="overloaded"} 1.0' in metrics
