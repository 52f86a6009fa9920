"""The runtime directory: where the processes of one `jetway serve` meet. Private to the user, removed at the end."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ConfigError

_LONGEST_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path holds 108 with its final zero
_PREFIX = "jetway-"
_LOCK = "lock"


def config_file(directory: Path) -> Path:
    """The resolved configuration, written before the first role starts."""
    return directory / "serve.yaml"


def life_socket(directory: Path, role: str, epoch: int) -> Path:
    """Where one life of a role listens: a second gRPC server would silently take over the path of the first."""
    return directory / f"{role}-{epoch}.sock"


def role_socket(directory: Path, role: str) -> Path:
    """Where the others find the role: a link to the socket of its present life, absent while there is none.

    A connection to it that breaks, and is tried again, leads to the next life.
    """
    return directory / f"{role}.sock"


def enter(directory: Path, role: str, epoch: int) -> None:
    """From now on the others find this life of the role."""
    link = role_socket(directory, role)
    unseen = link.with_suffix(".new")
    unseen.symlink_to(life_socket(directory, role, epoch).name)
    unseen.rename(link)


def leave(directory: Path, role: str, epoch: int) -> None:
    """The life has ended: its socket goes, and the link to it."""
    role_socket(directory, role).unlink(missing_ok=True)
    life_socket(directory, role, epoch).unlink(missing_ok=True)


@contextmanager
def runtime_directory(parents: list[str] | None = None) -> Iterator[Path]:
    """A fresh directory of mode 0700 in the first of `parents` that takes one and is short enough for a socket's path.

    What killed processes have left there is removed first. Raises ConfigError when there is none. `parents` defaults to
    XDG_RUNTIME_DIR, the temporary directory and /tmp.
    """
    if parents is None:
        parents = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    places = [Path(parent) for parent in parents if parent]
    _sweep(places)
    directory = _make_directory(places)
    try:
        with _lock(directory):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _make_directory(parents: list[Path]) -> Path:
    for parent in parents:
        try:
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        except OSError:
            continue
        if len(os.fsencode(life_socket(directory, "scheduler", 2**32))) <= _LONGEST_SOCKET_PATH_BYTES:
            return directory
        directory.rmdir()
    tried = ", ".join(map(str, parents))
    raise ConfigError(f"no runtime directory: {tried} cannot be written or are too long for a socket's path")


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; it is free once this process has ended, in whatever way."""
    unseen = directory / f"{_LOCK}.new"
    with unseen.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unseen.rename(directory / _LOCK)  # so that nobody ever sees the lock of a living process free
        yield


def _sweep(parents: list[Path]) -> None:
    """Remove the directories whose process is surely gone."""
    for parent in parents:
        for directory in parent.glob(f"{_PREFIX}*"):
            if _is_abandoned(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _is_abandoned(directory: Path) -> bool:
    """Whether it is this user's, and nobody holds its lock."""
    try:
        if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
            return False
        with (directory / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:  # no lock, a held one, or gone meanwhile
        return False
