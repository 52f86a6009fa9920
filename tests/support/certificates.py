"""A certificate authority of a test's own, by the `openssl` command."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """A certificate and its key, PEM files."""

    certificate: Path
    key: Path


def authority(directory: Path, name: str) -> Pair:
    pair = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"),
        *("-subj", f"/CN={name}", "-keyout", pair.key, "-out", pair.certificate),
    )
    return pair


def signed(by: Pair, directory: Path, name: str) -> Pair:
    """A certificate for 127.0.0.1, good for servers and clients."""
    pair = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", pair.key, "-out", request),
    )
    _openssl(
        *("x509", "-req", "-days", "1", "-in", request, "-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial"),
        *("-extfile", extensions, "-out", pair.certificate),
    )
    return pair


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
