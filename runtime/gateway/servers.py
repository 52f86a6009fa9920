"""The two listening servers of a gateway. Both: `start` binds, `port` is the real one, `stop` lets open calls end."""

import asyncio
import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import grpc
import uvicorn
from fastapi import FastAPI
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from jetway.runtime.config import GatewayConfig
from jetway.runtime.decoding import AsyncDecoding
from jetway.runtime.errors import ConfigError
from jetway.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

from .http_protocol import ConnectionLimits, HttpConfig
from .tls import Tls

_INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
KEEP_ALIVE_S = 60  # between two looks at whether a client that says nothing is still there
_NUM_OTHER_CALLS = 256  # of Admin, health and reflection, and of those that are still to be refused with a better word
_ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name


class HttpServer:
    """Runs an ASGI application on uvicorn, inside the running event loop."""

    def __init__(self, app: FastAPI, config: GatewayConfig, tls: Tls | None) -> None:
        self._config = config
        self._server = _Uvicorn(
            HttpConfig(
                app,
                ConnectionLimits(config.max_connections, config.stall_limit_s),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                ssl_context_factory=None if tls is None else lambda config, default: tls.context,
            )
        )

    async def start(self) -> None:
        """Raises ConfigError when the address cannot be bound."""
        self._socket = _listen(self._config.host, self._config.port, self._config.stall_limit_s)
        self.port: int = self._socket.getsockname()[1]
        self._running = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        await self._server.listening.wait()

    async def stop(self, timeout_s: float) -> None:
        """Accept nothing more, and cut what is open after `timeout_s`; of several calls the earliest to cut counts."""
        self._server.stopping.set()
        await asyncio.wait((self._running,), timeout=timeout_s)
        self._server.cut()
        await self._running


class _Uvicorn(uvicorn.Server):
    """Leaves the process's signals alone, says when it listens, and stops when it is told instead of looking for it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    def cut(self) -> None:
        """End what is open now."""
        self.force_exit = True
        for task in self.server_state.tasks:
            task.cancel()

    async def main_loop(self) -> None:
        ticking = asyncio.create_task(super().main_loop())
        await self.stopping.wait()
        ticking.cancel()


def _listen(host: str, port: int, stall_limit_s: float) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"the gateway cannot listen on {host} port {port}: {error.strerror}") from error
    # A cancelled call does not free the socket of a client that never reads; the kernel does, after as long.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(1000 * stall_limit_s))
    # Nor is a client that is gone without a word noticed while it has nothing to read.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
    return listener


class Registrable(Protocol):
    """A service that adds itself to a server."""

    @property
    def name(self) -> str: ...

    def register(self, server: grpc.aio.Server) -> None: ...


class GrpcServer:
    """jetway.v1.Inference and Admin with the health and reflection services, and with KServe's where it is there."""

    def __init__(
        self,
        servicer: inference_pb2_grpc.InferenceServicer,
        admin: admin_pb2_grpc.AdminServicer,
        config: GatewayConfig,
        tls: Tls | None,
        kserve: Registrable | None = None,
    ) -> None:
        self._config = config
        self._tls = tls
        self._servicer = servicer
        self._admin = admin
        self._kserve = kserve

    async def start(self) -> None:
        """Raises ConfigError when the address cannot be bound."""
        options = [
            ("grpc.so_reuseport", 0),  # else a second server would share the port in silence
            ("grpc.max_receive_message_length", self._config.max_request_bytes),
            ("grpc.max_allowed_incoming_connections", self._config.max_connections),
            ("grpc.keepalive_time_ms", 1000 * KEEP_ALIVE_S),
        ]
        self._server = grpc.aio.server(
            interceptors=[AsyncDecoding()],
            options=options,
            maximum_concurrent_rpcs=self._config.max_open_requests + _NUM_OTHER_CALLS,
        )
        self._health = health.aio.HealthServicer()
        await self.set_serving(serving=False)
        inference_pb2_grpc.add_InferenceServicer_to_server(self._servicer, self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(self._admin, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [_INFERENCE, _ADMIN, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if self._kserve is not None:
            self._kserve.register(self._server)
            names.append(self._kserve.name)
        reflection.enable_server_reflection(names, self._server)
        self.port = self._bind()
        await self._server.start()

    async def set_serving(self, *, serving: bool) -> None:
        """What the health service says."""
        response = health_pb2.HealthCheckResponse
        for service in ("", _INFERENCE):
            await self._health.set(service, response.SERVING if serving else response.NOT_SERVING)

    async def stop(self, timeout_s: float) -> None:
        """As HttpServer.stop."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(timeout_s)

    def _bind(self) -> int:
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        address = f"{host}:{self._config.grpc_port}"
        try:
            if self._tls is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, _credentials(self._tls))
        except RuntimeError as error:
            place = f"{self._config.host} port {self._config.grpc_port}"
            raise ConfigError(f"the gateway cannot listen on {place}: {error}") from error


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.client_ca, require_client_auth=tls.client_ca is not None
    )
