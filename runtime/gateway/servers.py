"""The two listening servers of a gateway. Both: `start` listens, `stop` lets open calls end."""

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
from jetway.runtime.doors import KEEP_ALIVE_S
from jetway.runtime.errors import ConfigError
from jetway.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

from .http_protocol import ConnectionLimits, HttpConfig
from .tls import Tls

_INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
_NUM_OTHER_CALLS = 256  # of Admin, health and reflection, and of those that are still to be refused with a better word
_MIN_PING_INTERVAL_S = 5  # clients may look as often whether the gateway is there: gRPC's own 300 would cut them off
_ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name


class HttpServer:
    """Runs an ASGI application on uvicorn, inside the running event loop."""

    def __init__(self, app: FastAPI, config: GatewayConfig, tls: Tls | None) -> None:
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

    async def start(self, bound: socket.socket) -> None:
        """Listen on the socket, and close it in the end. Raises ConfigError when another server listens there."""
        try:
            bound.listen()
        except OSError as error:
            raise ConfigError(
                f"the gateway cannot listen on port {bound.getsockname()[1]}: {error.strerror}"
            ) from error
        self._running = asyncio.create_task(self._server.serve(sockets=[bound]))
        await self._server.listening.wait()

    def leave(self) -> None:
        """Accept no more connections, and let each that is open end with its next answer, or once it has been idle."""
        self._server.leave()

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

    def leave(self) -> None:
        for server in self.servers:
            server.close()
        last = (b"connection", b"close")
        self.config.encoded_headers.append(last)
        self.server_state.default_headers.append(last)  # which is made anew every second

    def cut(self) -> None:
        """End what is open now."""
        self.force_exit = True
        for task in self.server_state.tasks:
            task.cancel()

    async def main_loop(self) -> None:
        ticking = asyncio.create_task(super().main_loop())
        await self.stopping.wait()
        ticking.cancel()


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
        kserve: Registrable | None,
    ) -> None:
        self._config = config
        self._tls = tls
        self._servicer = servicer
        self._admin = admin
        self._kserve = kserve

    async def start(self, port: int) -> None:
        """Listen on the port, which the caller holds. Raises ConfigError when another server listens there."""
        options = [
            ("grpc.so_reuseport", 1),  # with the other gateways; whoever holds the port keeps others away
            ("grpc.max_connection_age_ms", math.ceil(1000 * self._config.max_connection_age_s)),
            ("grpc.max_receive_message_length", self._config.max_request_bytes),
            ("grpc.max_allowed_incoming_connections", self._config.max_connections),
            ("grpc.keepalive_time_ms", 1000 * KEEP_ALIVE_S),
            ("grpc.http2.min_ping_interval_without_data_ms", 1000 * _MIN_PING_INTERVAL_S),
        ]
        self._server = grpc.aio.server(
            interceptors=[AsyncDecoding()],
            options=options,
            maximum_concurrent_rpcs=self._config.max_open_requests + _NUM_OTHER_CALLS,
        )
        self._health = health.aio.HealthServicer()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)  # live: that it answers is the proof
        await self.set_ready(ready=False)
        inference_pb2_grpc.add_InferenceServicer_to_server(self._servicer, self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(self._admin, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [_INFERENCE, _ADMIN, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if self._kserve is not None:
            self._kserve.register(self._server)
            names.append(self._kserve.name)
        reflection.enable_server_reflection(names, self._server)
        self._bind(port)
        await self._server.start()

    async def set_ready(self, *, ready: bool) -> None:
        """What the health service says of jetway.v1.Inference."""
        response = health_pb2.HealthCheckResponse
        await self._health.set(_INFERENCE, response.SERVING if ready else response.NOT_SERVING)

    async def stop(self, timeout_s: float) -> None:
        """As HttpServer.stop."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(timeout_s)

    def _bind(self, port: int) -> None:
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        try:
            if self._tls is None:
                self._server.add_insecure_port(f"{host}:{port}")
            else:
                self._server.add_secure_port(f"{host}:{port}", _credentials(self._tls))
        except RuntimeError as error:
            raise ConfigError(f"the gateway cannot listen on {self._config.host} port {port}: {error}") from error


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.client_ca, require_client_auth=tls.client_ca is not None
    )
