"""Random and mutated messages to every method of the gateway's gRPC server: a typed answer each, and it serves on."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2

from jetway.v1 import admin_pb2, common_pb2, inference_pb2
from tests.support.random_messages import messages
from tests.support.stack import stack
from tests.support.tokenizers import byte_level, write_engine


def _tensor(name: str, datatype: str, shape: list[int], **contents: Any) -> Any:
    values = service_pb2.InferTensorContents(**contents)
    return service_pb2.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, contents=values)


NUM_MESSAGES = 300
# What a method may say to nonsense: nothing that means a fault of ours, and nothing that another request caused.
TYPED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"}
GENERATE = inference_pb2.GenerateRequest(
    text="hi", max_tokens=4, n=2, stop=["x"], sampling=common_pb2.SamplingParams(temperature=0.5, seed=1, logprobs=1)
)
INFER = service_pb2.ModelInferRequest(
    model_name="tensorrt_llm",
    id="1",
    inputs=[
        _tensor("input_ids", "INT32", [1, 2], int_contents=[7, 8]),
        _tensor("input_lengths", "INT32", [1, 1], int_contents=[2]),
        _tensor("request_output_len", "INT32", [1, 1], int_contents=[3]),
        _tensor("runtime_top_p", "FP32", [1, 1], fp32_contents=[0.5]),
    ],
)
METHODS: list[tuple[str, str, Message]] = [
    ("unary_unary", "/jetway.v1.Inference/Generate", GENERATE),
    ("unary_stream", "/jetway.v1.Inference/GenerateStream", GENERATE),
    ("unary_unary", "/jetway.v1.Inference/ListModels", inference_pb2.ListModelsRequest()),
    ("unary_unary", "/jetway.v1.Admin/Status", admin_pb2.StatusRequest()),
    ("unary_unary", "/inference.GRPCInferenceService/ModelInfer", INFER),
    ("stream_stream", "/inference.GRPCInferenceService/ModelStreamInfer", INFER),
    (
        "unary_unary",
        "/inference.GRPCInferenceService/ModelMetadata",
        service_pb2.ModelMetadataRequest(name="tensorrt_llm"),
    ),
    ("unary_unary", "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest()),
    (
        "stream_stream",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="jetway.v1.Inference"),
    ),
]


async def outcome(channel: Any, kind: str, method: str, message: bytes) -> str:
    """The status that the method ends with; one that waits for a client that has been served is OK."""
    call = getattr(channel, kind)(method)
    call = call(iter([message]), timeout=10.0) if kind == "stream_stream" else call(message, timeout=10.0)
    try:
        if kind == "unary_unary":
            await call
        else:
            async for delta in call:
                if kind == "unary_stream" and inference_pb2.GenerateDelta.FromString(delta).HasField("error"):
                    error = inference_pb2.GenerateDelta.FromString(delta).error
                    return common_pb2.ErrorCode.Name(error.code).removeprefix("ERROR_CODE_")
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


@pytest.mark.parametrize(("kind", "method", "good"), METHODS, ids=[method for _, method, _ in METHODS])
async def test_nonsense_has_a_typed_answer(tmp_path: Path, kind: str, method: str, good: Message) -> None:
    rng = random.Random(method)
    async with stack(write_engine(tmp_path, byte_level())) as running:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.gateway.grpc_port}") as channel:
            outcomes: Counter[str] = Counter()
            for each in messages(rng, good, NUM_MESSAGES):
                async with asyncio.timeout(15.0):
                    outcomes[await outcome(channel, kind, method, each)] += 1
        assert set(outcomes) <= TYPED, outcomes
        assert outcomes["INVALID_ARGUMENT"] > 0
        assert (await running.clients[""].generate("a", max_tokens=2, ignore_eos=True)).usage.completion_tokens == 2
        stats = await running.stats()
        assert (stats.num_running, stats.num_waiting) == (0, 0)
