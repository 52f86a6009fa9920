"""Room on a disk, looked at before hours of work end for the want of it."""

import shutil
from pathlib import Path

from .errors import OutputError


def free_bytes(directory: Path) -> int:
    """Free bytes where `directory` is, or will be."""
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free


def check_room(directory: Path, what: str, needed_bytes: int) -> None:
    """Raise OutputError unless so many bytes can be written to `directory`, where `what` will be."""
    free = free_bytes(directory)
    if free < needed_bytes:
        raise OutputError(
            f"{directory}: the {what} takes about {needed_bytes / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free there. "
            "Make room, or choose another --output-dir."
        )
