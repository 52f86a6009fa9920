"""Triton's own clients in front of a gateway."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import aio, service_pb2_grpc

from jetway.runtime.gateway.app import Gateway
from tests.support.triton import client_of


@pytest.fixture
async def triton(gateway: Gateway) -> AsyncIterator[aio.InferenceServerClient]:
    async with client_of(gateway) as client:
        yield client


@pytest.fixture
def triton_stub(channel: grpc.aio.Channel) -> Any:
    """For what the client does not let a test do."""
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)
