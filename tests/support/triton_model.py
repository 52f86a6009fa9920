"""Jetway's model as Triton loads it, between a stand-in for its Python backend and a gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.text_format import Parse
from tritonclient.grpc.model_config_pb2 import ModelConfig

from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.kserve.dialects.text import TextDialect
from jetway.runtime.gateway.kserve.dialects.tokens import TokensDialect
from jetway.runtime.triton.repository import configuration
from tests.support import triton_backend
from tests.support.triton_backend import InferenceRequest, InferenceResponse, TritonError

triton_backend.install()
from jetway.runtime.triton.model import TritonPythonModel

TEXT = {"text_input": np.array([[b"hi"]], dtype=object), "max_tokens": np.array([[8]], np.int32)}
STREAM = TEXT | {"stream": np.array([[True]])}


def url_of(gateway: Gateway, scheme: str) -> str:
    return f"{scheme}://127.0.0.1:{gateway.http_port if scheme == 'http' else gateway.grpc_port}"


@asynccontextmanager
async def loaded(name: str, url: str) -> AsyncIterator[TritonPythonModel]:
    """The model as Triton loads it; unloaded at the end."""
    signature = TokensDialect if name == "tensorrt_llm" else TextDialect
    config = Parse(configuration(name, signature, url), ModelConfig())
    fields = MessageToDict(config, preserving_proto_field_name=True)
    for each in fields["output"]:
        each["dims"] = [int(dim) for dim in each["dims"]]
    model = TritonPythonModel()
    model.initialize({"model_name": name, "model_config": json.dumps({"max_batch_size": 0} | fields)})
    try:
        yield model
    finally:
        await asyncio.to_thread(model.finalize)


async def said(request: InferenceRequest) -> InferenceResponse | None:
    return await asyncio.to_thread(request.sender.next)


def arrays(response: InferenceResponse | None) -> dict[str, Any]:
    assert response is not None
    assert response.error is None
    assert {tensor.as_numpy().dtype for tensor in response.output_tensors} <= {np.dtype(object), np.dtype(np.int32)}
    return {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors}


def error_of(response: InferenceResponse | None) -> TritonError:
    assert response is not None
    assert response.error is not None
    return response.error
