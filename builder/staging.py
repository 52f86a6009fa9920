"""An output directory that appears whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import OutputError


@contextmanager
def staged(output_dir: Path) -> Iterator[Path]:
    """An empty directory beside `output_dir` that takes its place when the block ends, and vanishes when it fails.

    Cleans what a killed build left. Raises OutputError when another build is writing the same output, or when the
    place cannot be written.
    """
    output_dir = output_dir.resolve()
    staging = output_dir.with_name(f".{output_dir.name}.building")
    replaced = output_dir.with_name(f".{output_dir.name}.replaced")
    try:
        output_dir.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(staging, output_dir)
        try:
            _clean(staging, replaced)
            yield staging
            _publish(staging, output_dir, replaced)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            os.close(lock)
    except OSError as error:
        raise OutputError(f"{output_dir}: cannot be written ({error}). Choose another --output-dir.") from error


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


def _clean(staging: Path, replaced: Path) -> None:
    for path in staging.iterdir():
        path.unlink()
    if replaced.exists():
        shutil.rmtree(replaced)


def _publish(staging: Path, output_dir: Path, replaced: Path) -> None:
    if not output_dir.exists():
        staging.rename(output_dir)
        return
    output_dir.rename(replaced)
    try:
        staging.rename(output_dir)
    except BaseException:
        replaced.rename(output_dir)
        raise
    shutil.rmtree(replaced)
