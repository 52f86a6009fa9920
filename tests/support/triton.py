"""What Triton's clients send and get, in a few words."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput, InferResult, aio, service_pb2

from jetway.runtime.gateway.app import Gateway
from tests.support.http import Answer, exchange, post

Array = Any  # of any element type


def client_of(gateway: Gateway) -> aio.InferenceServerClient:
    """To be entered."""
    return aio.InferenceServerClient(f"127.0.0.1:{gateway.grpc_port}")


def text_inputs(text: str = "hi", max_tokens: int = 8, **more: Array) -> list[InferInput]:
    """Of `ensemble`; arrays by their tensor's name."""
    return inputs(
        text_input=np.array([[text.encode()]], dtype=object), max_tokens=np.array([[max_tokens]], np.int32), **more
    )


def token_inputs(ids: Sequence[int], max_tokens: int = 8, **more: Array) -> list[InferInput]:
    """Of `tensorrt_llm`, dialect inflight."""
    return inputs(
        input_ids=np.array([ids], np.int32),
        input_lengths=np.array([[len(ids)]], np.int32),
        request_output_len=np.array([[max_tokens]], np.int32),
        **more,
    )


def inputs(**arrays: Array) -> list[InferInput]:
    tensors = []
    for name, array in arrays.items():
        tensor = InferInput(name, list(array.shape), _DATATYPES[array.dtype.kind, array.dtype.itemsize])
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


_DATATYPES = {
    ("O", 8): "BYTES", ("b", 1): "BOOL", ("i", 4): "INT32", ("i", 8): "INT64", ("u", 8): "UINT64", ("f", 4): "FP32",
}  # fmt: skip
TRUE, FALSE = np.array([[True]]), np.array([[False]])


def texts(result: InferResult, name: str = "text_output") -> list[str]:
    return [each.decode() for each in result.as_numpy(name)]


def is_final(result: InferResult) -> bool:
    final: bool = result.get_response().parameters["triton_final_response"].bool_param
    return final


async def request_stream(messages: Iterable[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """What the aio client's stream_infer takes."""
    for message in messages:
        yield message


@asynccontextmanager
async def opened(stub: Any, metadata: Any = ()) -> AsyncIterator[Any]:
    """A stream to be written to and read from; cancelled at the end."""
    call = stub.ModelStreamInfer(metadata=metadata)
    try:
        yield call
    finally:
        call.cancel()


async def generate(gateway: Gateway, path: str, body: dict[str, Any], headers: str = "") -> Answer:
    return await exchange(gateway.http_port, post(f"/v2/models/{path}", body, headers))


def parsed(answer: Answer) -> Any:
    return json.loads(answer.body)


def raw_request(model: str = "ensemble", id: str = "7", text: bytes = b"hi", *, stream: bool = False) -> Any:
    """A ModelInferRequest as tritonclient writes it, for tests to bend."""
    message = service_pb2.ModelInferRequest(model_name=model, id=id)
    add_input(message, "text_input", "BYTES", len(text).to_bytes(4, "little") + text)
    add_input(message, "max_tokens", "INT32", b"\x08\x00\x00\x00")
    if stream:
        add_input(message, "stream", "BOOL", b"\x01")
    return message


def add_input(message: Any, name: str, datatype: str, content: bytes) -> None:
    """One element."""
    message.inputs.add(name=name, datatype=datatype, shape=[1, 1])
    message.raw_input_contents.append(content)
