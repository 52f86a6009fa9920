"""One call of jetway.v1.Admin to a running server, for the commands that make one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import grpc

from jetway.client_channel import Tls, channel
from jetway.client_messages import call_metadata
from jetway.v1 import admin_pb2, admin_pb2_grpc

from .errors import ConfigError, JetwayError, Unavailable

_TIMEOUT_S = 5.0
_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class Gateway(NamedTuple):
    """Whom to call, and how.

    Every call raises Unavailable when nothing answers there, ConfigError for a TLS file that cannot be read and a key that
    is refused.
    """

    address: str
    api_key: str | None = None
    tls: Tls | None = None

    def status(self) -> admin_pb2.StatusResponse:
        with self._stub() as stub:
            return stub.Status(admin_pb2.StatusRequest(), timeout=_TIMEOUT_S, metadata=self._metadata)

    def drain(self) -> None:
        """Returns as it begins."""
        with self._stub() as stub:
            stub.Drain(admin_pb2.DrainRequest(), timeout=_TIMEOUT_S, metadata=self._metadata)

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return call_metadata(self.api_key, tenant=None)

    @contextmanager
    def _stub(self) -> Iterator[admin_pb2_grpc.AdminStub]:
        try:
            connected = channel(self.address, self.tls)
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
        with connected:
            try:
                yield admin_pb2_grpc.AdminStub(connected)
            except grpc.RpcError as error:
                raise self._translated(error) from error

    def _translated(self, error: grpc.RpcError) -> JetwayError:
        details = " ".join(f"{error.code().name}: {error.details()}".split())
        if error.code() in _REFUSALS:
            return ConfigError(f"the gateway at {self.address} refuses JETWAY_API_KEY ({details})")
        return Unavailable(f"no Jetway gateway answers at {self.address} ({details})")
