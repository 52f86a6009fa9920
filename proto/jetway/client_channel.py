"""How a client reaches a server; `jetway.client` is the public face."""

from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A connection over TLS, by PEM files.

    `ca`: who signs the server's certificate; None: whom gRPC trusts by itself. `certificate` and `key`: who the client
    is, for a server that asks.
    """

    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises OSError for a file that cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca), private_key=_read(self.key), certificate_chain=_read(self.certificate)
        )


_OPTIONS = [("grpc.max_receive_message_length", 64 << 20)]  # a long answer with logprobs takes more than gRPC's 4 MiB


def channel(address: str, tls: Tls | None) -> grpc.Channel:
    """Raises OSError for a file that cannot be read."""
    if tls is None:
        return grpc.insecure_channel(address, _OPTIONS)
    return grpc.secure_channel(address, tls.credentials(), _OPTIONS)


def async_channel(address: str, tls: Tls | None) -> grpc.aio.Channel:
    """Raises OSError for a file that cannot be read."""
    if tls is None:
        return grpc.aio.insecure_channel(address, _OPTIONS)
    return grpc.aio.secure_channel(address, tls.credentials(), _OPTIONS)


def _read(path: str | Path | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
