"""Standard output and standard error, whoever reads them, slowly or not at all."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

from .errors import Unavailable

STDOUT_FD, STDERR_FD = 1, 2
_MOST_WAITING_BYTES = 4 << 20
_LAST_WORDS_S = 1.0  # what a reader gets at the end


class Outlet:
    """Lines to a file descriptor. A thread writes them, so that no reader can hold up the one who speaks.

    A line is lost when too many wait before it, or when it cannot be written: the disk is full, the reader has gone.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        threading.Thread(target=self._write_all, name=f"outlet-{self._fd}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, _LAST_WORDS_S)

    def say(self, line: str) -> None:
        """Never waits and never fails."""
        data = f"{line}\n".encode(errors="replace")
        with self._changed:
            if len(self._waiting) + len(data) <= _MOST_WAITING_BYTES:
                self._waiting += data
                self._changed.notify_all()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                data = bytes(self._waiting)
            with suppress(OSError):
                _write(self._fd, data)
            with self._changed:
                del self._waiting[: len(data)]
                self._changed.notify_all()


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class Outlets(NamedTuple):
    out: Outlet
    err: Outlet


@contextmanager
def standard_outlets() -> Iterator[Outlets]:
    """Both, for as long as the block runs. One that was closed from the start leads nowhere."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR_FD:
        pass  # else the next pipe would get the number, and hear what is meant for the user
    os.close(fd)
    with Outlet(STDOUT_FD) as out, Outlet(STDERR_FD) as err:
        yield Outlets(out, err)


@contextmanager
def printing() -> Iterator[None]:
    """Around what prints and ends: quiet when the reader has seen enough. Raises Unavailable when the disk is full."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(STDOUT_FD)
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        _silence(STDOUT_FD)
        raise Unavailable(f"standard output cannot be written: {error.strerror}") from error


def complain(line: str) -> None:
    """To standard error, if it can be written."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _silence(STDERR_FD)


def _silence(fd: int) -> None:
    """Let what is buffered go nowhere, or the interpreter would try again at its end, and change the exit status."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_fd, fd)
    os.close(null_fd)
