"""Room on a disk, looked at before hours of work end for the want of it."""

import shutil
from pathlib import Path

from .errors import OutputError


def free_bytes(directory: Path) -> int:
    """Free bytes where `directory` is, or will be."""
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free


def check_room(directory: Path, needed_bytes: int) -> None:
    """Raise OutputError unless so many bytes can be written to `directory`."""
    free = free_bytes(directory)
    if free < needed_bytes:
        raise OutputError(
            f"{directory}: the engine takes about {needed_bytes / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free there. "
            "Make room, or choose another --output-dir."
        )
