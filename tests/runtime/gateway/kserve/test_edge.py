"""What is there without tritonclient, and what the names stand for."""

import logging
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from tokenizers import Tokenizer

from jetway.runtime.gateway.kserve.catalog import Catalog
from jetway.runtime.gateway.kserve.dialects.llmapi import LlmapiDialect
from jetway.runtime.gateway.kserve.dialects.text import TextDialect
from jetway.runtime.gateway.kserve.dialects.tokens import TokensDialect
from jetway.runtime.gateway.text.vocabulary import Vocabulary
from jetway.v1 import inference_pb2, inference_pb2_grpc
from tests.support.fake_scheduler import FakeScheduler, answering
from tests.support.gateway import running_gateway
from tests.support.triton import generate, parsed


async def test_without_tritonclient_the_http_half_is_there_and_the_log_says_why(
    engine_dir: Path,
    scheduler: FakeScheduler,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    scheduler.script = answering(tokenizer.encode("a", add_special_tokens=False).ids)
    with caplog.at_level(logging.INFO):
        async with (
            running_gateway(engine_dir, scheduler.address) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel,
        ):
            answer = await generate(gateway, "ensemble/generate", {"text_input": "hi", "max_tokens": 1})
            own: Any = inference_pb2_grpc.InferenceStub(channel)
            response = await own.Generate(inference_pb2.GenerateRequest(text="hi"))
            live: Any = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await live(b"")
    assert parsed(answer)["text_output"] == "hia"
    assert response.choices[0].text == "a"
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "for gRPC install jetway-llm[triton]" in caplog.text


def test_the_served_name_never_hides_the_dialect_of_tensorrt_llm(tokenizer: Tokenizer) -> None:
    catalog = Catalog("tensorrt_llm", "inflight", Vocabulary(tokenizer))
    kinds = {model.name: type(model.dialect) for model in catalog}
    assert kinds == {"tensorrt_llm": TokensDialect, "ensemble": TextDialect, "tensorrt_llm_bls": TextDialect}
    other = Catalog("mine", "llmapi", Vocabulary(tokenizer))
    assert {model.name: type(model.dialect) for model in other} == {
        "mine": TextDialect, "ensemble": TextDialect, "tensorrt_llm_bls": TextDialect, "tensorrt_llm": LlmapiDialect,
    }  # fmt: skip
