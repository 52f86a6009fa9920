"""The two ports of `jetway serve`: held by the supervisor, so that they are the same for every gateway that comes and goes.

Imports no grpc.
"""

import math
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from .config import GatewayConfig
from .errors import ConfigError

KEEP_ALIVE_S = 60  # between two looks at whether a client that says nothing is still there


@dataclass(frozen=True, slots=True)
class Doors:
    """`http` is one socket for all gateways: what waits there to be accepted outlives each of them. Listens once the
    first gateway does.

    gRPC cannot inherit a socket. Each gateway binds one of its own, with SO_REUSEPORT, to the port of `grpc`, which never
    listens and lets nobody else have the port.
    """

    http: socket.socket
    grpc: socket.socket
    http_port: int
    grpc_port: int

    @classmethod
    def of(cls, http: socket.socket, grpc: socket.socket) -> "Doors":
        """Both are bound."""
        return cls(http, grpc, http.getsockname()[1], grpc.getsockname()[1])

    @classmethod
    def inherited(cls, http_fd: int, grpc_fd: int) -> "Doors":
        return cls.of(socket.socket(fileno=http_fd), socket.socket(fileno=grpc_fd))

    def close(self) -> None:
        self.http.close()
        self.grpc.close()


def open_doors(config: GatewayConfig) -> Doors:
    """Take both ports. Raises ConfigError when one cannot be bound."""
    with ExitStack() as undo:
        http = undo.enter_context(_bound(config.host, config.port))
        grpc = undo.enter_context(_bound(config.host, config.grpc_port))
        # A client that never reads keeps its socket beyond its call; the kernel takes it away, after as long.
        http.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(1000 * config.stall_limit_s))
        # Nor is a client that is gone without a word noticed while it has nothing to read.
        http.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        http.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
        # In this order, and only now: gateways may share the port, and another server could not have.
        grpc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        grpc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        undo.pop_all()
    return Doors.of(http, grpc)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as undo:
        bound = undo.enter_context(socket.socket(family))
        try:
            _check_free(family, host, port)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier run may linger
            bound.bind((host, port))
        except OSError as error:
            raise ConfigError(f"the gateway cannot listen on {host} port {port}: {error.strerror}") from error
        except (TypeError, ValueError) as error:  # Python's words for what it cannot encode
            raise ConfigError(f"the gateway cannot listen on {host!r}: it is no host name") from error
        undo.pop_all()
    return bound


def _check_free(family: int, host: str, port: int) -> None:
    """Raise OSError when another server has the port, even one that does not listen yet: two may bind, only one listens."""
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
