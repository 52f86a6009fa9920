"""The runtime directory: where the processes of one `jetway serve` meet. Private to the user, removed at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ConfigError

_LONGEST_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path holds 108 with its final zero


def config_file(directory: Path) -> Path:
    """The resolved configuration, written before the first role starts."""
    return directory / "serve.yaml"


def executor_socket(directory: Path, epoch: int) -> Path:
    """A new one for each life of the executor: a second gRPC server would silently take over the old path."""
    return directory / f"executor-{epoch}.sock"


def scheduler_socket(directory: Path) -> Path:
    return directory / "scheduler.sock"


@contextmanager
def runtime_directory(parents: list[str] | None = None) -> Iterator[Path]:
    """A fresh directory of mode 0700 in the first of `parents` that takes one and is short enough for a socket's path.

    Raises ConfigError when there is none. `parents` defaults to XDG_RUNTIME_DIR, the temporary directory and /tmp.
    """
    if parents is None:
        parents = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    directory = _make_directory([Path(parent) for parent in parents if parent])
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _make_directory(parents: list[Path]) -> Path:
    for parent in parents:
        try:
            directory = Path(tempfile.mkdtemp(prefix="jetway-", dir=parent))
        except OSError:
            continue
        if len(os.fsencode(executor_socket(directory, 2**32))) <= _LONGEST_SOCKET_PATH_BYTES:
            return directory
        directory.rmdir()
    tried = ", ".join(map(str, parents))
    raise ConfigError(f"no runtime directory: {tried} cannot be written or are too long for a socket's path")
