"""Both ports over real sockets on loopback."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from jetway.runtime.config import GatewayConfig
from jetway.runtime.doors import Doors, open_doors
from jetway.runtime.errors import ConfigError

CONFIG = GatewayConfig(port=0, grpc_port=0)


@pytest.fixture
def doors() -> Iterator[Doors]:
    with closing(open_doors(CONFIG)) as doors:
        yield doors


def server(port: int, *, reuse_port: bool = False) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), reuse_port=reuse_port)


def test_gateways_share_the_port_of_grpc(doors: Doors) -> None:
    with server(doors.grpc_port, reuse_port=True), server(doors.grpc_port, reuse_port=True):
        pass


@pytest.mark.parametrize("port_of", [lambda doors: doors.http_port, lambda doors: doors.grpc_port])
@pytest.mark.parametrize("serving", [False, True])
def test_another_server_cannot_have_a_port_that_is_held(
    doors: Doors, port_of: Callable[[Doors], int], serving: bool
) -> None:
    doors.http.listen()
    if serving:
        server(doors.grpc_port, reuse_port=True).close()
    with pytest.raises(OSError, match="Address already in use"):
        server(port_of(doors))


@pytest.mark.parametrize("key", ["port", "grpc_port"])
def test_a_second_jetway_is_refused(doors: Doors, key: str) -> None:
    """Even while the first still loads its engine, and none of its gateways listens on gRPC's port."""
    doors.http.listen()
    port = {"port": doors.http_port, "grpc_port": doors.grpc_port}[key]
    config: dict[str, Any] = {key: port}
    with pytest.raises(
        ConfigError, match=f"^the gateway cannot listen on 127.0.0.1 port {port}: Address already in use"
    ):
        open_doors(replace(CONFIG, **config))


def test_nobody_listens_before_a_gateway_does(doors: Doors) -> None:
    for port in (doors.http_port, doors.grpc_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_what_waits_to_be_accepted_outlives_a_gateway(doors: Doors) -> None:
    gateway = Doors.inherited(doors.http.dup().detach(), doors.grpc.dup().detach())
    gateway.http.listen()
    with socket.create_connection(("127.0.0.1", doors.http_port)) as client:
        gateway.close()
        accepted, _ = doors.http.accept()
        with accepted:
            accepted.sendall(b"hello")
        assert client.recv(5) == b"hello"
