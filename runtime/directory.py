"""The runtime directory: where the processes of one `jetway serve` meet. Private to the user, removed at the end."""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import ConfigError

_LONGEST_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path holds 108 with its final zero
_PREFIX = "jetway-"
_LOCK = "lock"
_RECORD = "life"


def config_file(directory: Path) -> Path:
    """The resolved configuration, written before the first role starts."""
    return directory / "serve.yaml"


def life_socket(directory: Path, role: str, epoch: int) -> Path:
    """Where one life of a role listens: a second gRPC server would silently take over the path of the first."""
    return directory / f"{role}-{epoch}.sock"


def lifelines_socket(directory: Path, epoch: int) -> Path:
    """Where the processes of one life tie themselves to the supervisor."""
    return directory / f"life-{epoch}.sock"


def role_socket(directory: Path, role: str) -> Path:
    """Where the others find the role: a link to the socket of its present life, absent while there is none.

    A connection to it that breaks, and is tried again, leads to the next life.
    """
    return directory / f"{role}.sock"


def write_config(directory: Path, text: str) -> None:
    """For the roles. Raises ConfigError when there is no room."""
    try:
        config_file(directory).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{directory} cannot hold the configuration: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """What is to be known of a life that serves. `started_s` is on the machine's monotonic clock."""

    role: str
    epoch: int
    pids: Sequence[int]  # one, or of each rank of an executor of several
    num_restarts: int
    started_s: float


def enter(directory: Path, record: LifeRecord) -> None:
    """The life serves: it is on record, and if it listens here, the others find it from now on."""
    _put(_record_file(directory, record.epoch), lambda unseen: unseen.write_text(json.dumps(asdict(record))))
    socket = life_socket(directory, record.role, record.epoch)
    if socket.exists():
        _put(role_socket(directory, record.role), lambda unseen: unseen.symlink_to(socket.name))


def leave(directory: Path, role: str, epoch: int) -> None:
    """The life has ended: its record goes, its socket, and the link to it."""
    _record_file(directory, epoch).unlink(missing_ok=True)
    life_socket(directory, role, epoch).unlink(missing_ok=True)
    role_socket(directory, role).unlink(missing_ok=True)


def lives(directory: Path) -> list[LifeRecord]:
    """All that serve, the oldest first."""
    records = []
    for file in directory.glob(f"{_RECORD}-*.json"):
        with suppress(FileNotFoundError):  # it has just ended
            records.append(LifeRecord(**json.loads(file.read_text())))
    return sorted(records, key=lambda record: record.epoch)


def _record_file(directory: Path, epoch: int) -> Path:
    return directory / f"{_RECORD}-{epoch}.json"


def _put(place: Path, make: Callable[[Path], object]) -> None:
    """What `make` makes takes the place of what is there, whole and at once."""
    unseen = place.with_suffix(".new")
    make(unseen)
    unseen.rename(place)


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
    """Hold the directory's lock; it is free once this process has ended, in whatever way. Raises ConfigError."""
    unseen = directory / f"{_LOCK}.new"
    try:
        lock = unseen.open("wb")
    except OSError as error:
        raise ConfigError(f"{directory} takes no files: {error.strerror}") from error
    with lock:
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
