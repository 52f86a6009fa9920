"""A real gateway on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jetway.runtime.config import GatewayConfig
from jetway.runtime.gateway.access import OPEN_ACCESS, Access
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.surroundings import Alone

CONFIG = GatewayConfig(port=0, grpc_port=0)


@asynccontextmanager
async def running_gateway(
    engine_dir: Path, scheduler_address: str, access: Access = OPEN_ACCESS, **config: Any
) -> AsyncIterator[Gateway]:
    """Started and connected to the scheduler; stopped at the end, without a drain."""
    gateway = Gateway(replace(CONFIG, **config), engine_dir, None, Alone(scheduler_address), access)
    await gateway.start()
    try:
        await gateway.ready()
        yield gateway
    finally:
        await gateway.stop(0.0)
