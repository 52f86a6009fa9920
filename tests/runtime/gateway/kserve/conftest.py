"""Triton's own clients in front of a gateway."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import aio, service_pb2_grpc

from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.surroundings import Alone
from tests.support.gateway import CONFIG
from tests.support.triton import client_of


@pytest.fixture
async def triton(gateway: Gateway) -> AsyncIterator[aio.InferenceServerClient]:
    async with client_of(gateway) as client:
        yield client


@pytest.fixture
def triton_stub(channel: grpc.aio.Channel) -> Any:
    """For what the client does not let a test do."""
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture
async def waiting_gateway(engine_dir: Path) -> AsyncIterator[Gateway]:
    """One that has not found its scheduler."""
    gateway = Gateway(CONFIG, engine_dir, None, Alone("unix:/nonexistent.sock"))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop(0.0)
