"""An output directory that appears whole or not at all, and what an interrupted build leaves for the next."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import OutputError

MARKER = ".finished.json"  # names the files of a finished stage; written after them


@dataclass(frozen=True, slots=True)
class Staging:
    """A directory in which a build gathers an engine. Files of a finished stage outlive a build that fails later."""

    directory: Path

    def has(self, key: str) -> bool:
        """Whether the finished stage of `key` is here, whole."""
        return self._finished().get("key") == key

    def keep(self, key: str) -> None:
        """Take all files that are here now for a finished stage's, made of what `key` stands for."""
        marker = json.dumps({"key": key, "files": self.files()})
        (self.directory / MARKER).write_text(marker, encoding="utf-8")

    def files(self) -> dict[str, int]:
        """The files of the engine so far, and their sizes."""
        files = sorted(path for path in self.directory.rglob("*") if path.is_file() and path.name != MARKER)
        return {str(path.relative_to(self.directory)): path.stat().st_size for path in files}

    def clear(self) -> None:
        """Remove everything."""
        for path in self.directory.iterdir():
            _remove(path)

    def drop(self, name: str) -> None:
        """Remove one file or folder."""
        _remove(self.directory / name)

    def clean(self) -> None:
        """Remove everything but the files of a finished stage."""
        files = self._finished().get("files")
        kept = set() if files is None else {MARKER, *(Path(name).parts[0] for name in files)}
        for path in self.directory.iterdir():
            if path.name not in kept:
                _remove(path)

    def _finished(self) -> dict[str, Any]:
        """What the marker says; nothing where it is absent or broken, or a file is not as it says."""
        try:
            finished: dict[str, Any] = json.loads((self.directory / MARKER).read_text(encoding="utf-8"))
            sizes = {name: (self.directory / name).stat().st_size for name in finished["files"]}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return finished if sizes == finished["files"] else {}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def staged(output_dir: Path) -> Iterator[Staging]:
    """A staging area beside `output_dir` that takes its place when the block ends.

    When the block fails, only a finished stage's files remain, where the next build of the same output finds them.
    Cleans what a killed build left. Raises OutputError when another build is writing the same output, or when the
    place cannot be written.
    """
    output_dir = output_dir.resolve()
    directory = output_dir.with_name(f".{output_dir.name}.building")
    with _as_output_error(output_dir):
        output_dir.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(directory, output_dir)
    try:
        with _as_output_error(output_dir):
            _clear_replaced(output_dir)
            staging = Staging(directory)
            staging.clean()
            yield staging
            _publish(directory, output_dir)
    except BaseException as error:
        if _leave(directory):
            error.add_note(f"The converted model is kept in {directory}; the same command goes on from it.")
        raise
    finally:
        os.close(lock)


@contextmanager
def _as_output_error(output_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{output_dir}: cannot be written ({error}). Choose another --output-dir.") from error


def _replaced_directory(output_dir: Path) -> Path:
    """Where the engine that is being replaced stands for a moment."""
    return output_dir.with_name(f".{output_dir.name}.replaced")


def _lock(staging: Path, output_dir: Path) -> int:
    """A descriptor that holds the staging directory's lock; the lock ends with the process, however that ends."""
    while True:
        staging.mkdir(exist_ok=True)
        descriptor = os.open(staging, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise OutputError(f"{output_dir}: another build is writing it. Wait for it, or stop it.") from None
        if _is_open_at(descriptor, staging):
            return descriptor
        os.close(descriptor)  # another build published or removed this directory before we had its lock


def _is_open_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _clear_replaced(output_dir: Path) -> None:
    """End what a build that was killed while it published had begun."""
    replaced = _replaced_directory(output_dir)
    if replaced.exists() and not output_dir.exists():
        replaced.rename(output_dir)
    elif replaced.exists():
        shutil.rmtree(replaced)


def _publish(directory: Path, output_dir: Path) -> None:
    (directory / MARKER).unlink(missing_ok=True)
    if not output_dir.exists():
        directory.rename(output_dir)
        return
    replaced = _replaced_directory(output_dir)
    output_dir.rename(replaced)
    try:
        directory.rename(output_dir)
    except BaseException:
        replaced.rename(output_dir)
        raise
    shutil.rmtree(replaced)


def _leave(directory: Path) -> bool:
    """Remove the directory, but for a finished stage; whether one is there."""
    with suppress(OSError):  # the failure that led here is the one to report
        Staging(directory).clean()
        directory.rmdir()  # only if nothing is kept
    return (directory / MARKER).exists()
