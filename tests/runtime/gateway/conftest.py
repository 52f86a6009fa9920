"""A gateway in front of a fake scheduler, with a tokenizer of single bytes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest
from tokenizers import Tokenizer

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import inference_pb2_grpc
from tests.support.fake_scheduler import FakeScheduler
from tests.support.gateway import running_gateway
from tests.support.tokenizers import byte_level, write_engine


@pytest.fixture
def tokenizer() -> Tokenizer:
    return byte_level()


@pytest.fixture
def engine_dir(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return write_engine(tmp_path, tokenizer)


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeScheduler]:
    async with FakeScheduler() as scheduler:
        yield scheduler


@pytest.fixture
async def gateway(engine_dir: Path, scheduler: FakeScheduler) -> AsyncIterator[Gateway]:
    async with running_gateway(engine_dir, scheduler.address) as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client; it never retries."""
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{gateway.http_port}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


@pytest.fixture
async def channel(gateway: Gateway) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Any:
    return inference_pb2_grpc.InferenceStub(channel)
