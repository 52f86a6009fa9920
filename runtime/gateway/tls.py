"""The TLS of both servers: the certificate, its key and, where clients show certificates too, who signs those."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from jetway.runtime.config import GatewayConfig
from jetway.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM for gRPC, and the same as a context for HTTP."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext


def load_tls(config: GatewayConfig) -> Tls | None:
    """None without a certificate. Raises ConfigError for a file that cannot be read, is no PEM, or is another's key."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    certificate = _read("tls_certificate", config.tls_certificate)
    key = _read("tls_key", config.tls_key)
    client_ca = None if config.tls_client_ca is None else _read("tls_client_ca", config.tls_client_ca)
    _check_certificates("tls_certificate", config.tls_certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _load_key(context, config.tls_certificate, config.tls_key)
    if config.tls_client_ca is not None:
        _check_certificates("tls_client_ca", config.tls_client_ca)
        context.load_verify_locations(config.tls_client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return Tls(certificate, key, client_ca, context)


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {name} {path}: {error.strerror}") from error


def _check_certificates(name: str, path: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{name} {path} holds no certificate in PEM format") from error


def _load_key(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        context.load_cert_chain(certificate, key, password="")  # none: else it would ask on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"tls_key {key} is not the key of tls_certificate {certificate}") from error
        raise ConfigError(f"tls_key {key} holds no private key in PEM format, or one with a passphrase") from error
