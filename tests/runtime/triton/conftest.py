"""A gateway in front of a fake scheduler, and a real Triton server for which one can be the gateway."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import aio

from jetway.runtime.gateway.app import Gateway
from tests.conftest import ROOT, require
from tests.support.fake_scheduler import FakeScheduler
from tests.support.gateway import running_gateway
from tests.support.tokenizers import byte_level, write_engine
from tests.support.triton_model import url_of
from tests.support.triton_server import TritonBefore, triton_before_jetway


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


@pytest.fixture(params=["http", "grpc"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Of the URL at which a model finds the gateway: what carries its requests."""
    name: str = request.param
    return name


@pytest.fixture
def url(gateway: Gateway, scheme: str) -> str:
    return url_of(gateway, scheme)


@pytest.fixture(scope="package", params=["http", "grpc"])
def triton(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonBefore]:
    """A real one for each transport."""
    venv = require("triton", ROOT / ".jetway" / "triton" / "made", "scripts/triton").parent
    with triton_before_jetway(venv, request.param, tmp_path_factory.mktemp("triton")) as triton:
        yield triton


@pytest.fixture
async def client(triton: TritonBefore) -> AsyncIterator[aio.InferenceServerClient]:
    async with aio.InferenceServerClient(f"127.0.0.1:{triton.server.grpc_port}") as client:
        yield client
