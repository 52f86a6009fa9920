"""A process's end of what ties it to its supervisor."""

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .errors import ConfigError, Unavailable

BEATS_PER_TIMEOUT = 4  # so often a role that is well says so within `hang_timeout_s`
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Lifeline:
    """Ends this process when the supervisor is gone, and tells the supervisor how it goes: one JSON object a packet.

    A socket that the process opens itself, since mpirun need not hand descriptors on to what it starts.
    """

    def __init__(self, path: Path) -> None:
        """Raises Unavailable when the supervisor is gone already."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            raise Unavailable(f"there is no supervisor at {path}") from error

    def watch(self) -> None:
        """From now on the process ends at once when the supervisor does, whatever else it is doing.

        Linux kills it even if it is stopped, or inside a call that keeps the interpreter; else the socket has to tell.
        """
        die_with_parent()
        threading.Thread(target=self._wait_for_the_end, name="lifeline", daemon=True).start()

    def join(self, rank: int) -> None:
        """Say which rank of the executor this process is; without that it is rank 0."""
        self._send({"rank": rank})

    def announce(self, facts: Mapping[str, str]) -> None:
        """Say that this role serves; `facts` are shown to the user, one a line. Called once; beats must follow."""
        self._send({"ready": dict(facts)})

    def refuse(self, error: ConfigError) -> None:
        """Say that this role cannot serve as configured. Called once, instead of `announce`."""
        self._send({"refused": error.message})

    def beat(self) -> None:
        """Say that this role is well. Never waits and never fails."""
        self._send({"beat": None})

    def drain(self) -> None:
        """Ask the supervisor to drain and stop everything. Raises Unavailable when it does not take the message."""
        try:
            self._write({"drain": None})
        except OSError as error:
            raise Unavailable("the supervisor does not listen; try again") from error

    async def keep_beating(self, hang_timeout_s: float) -> None:
        """Beat for ever, as long as the event loop turns."""
        while True:
            self.beat()
            await asyncio.sleep(hang_timeout_s / BEATS_PER_TIMEOUT)

    def _send(self, message: Mapping[str, object]) -> None:
        # A supervisor that stands still has enough to read, and one that is gone ends this process anyway.
        with suppress(BlockingIOError, ConnectionError):
            self._write(message)

    def _write(self, message: Mapping[str, object]) -> None:
        self._socket.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)

    def _wait_for_the_end(self) -> None:
        with suppress(ConnectionError):
            self._socket.recv(1)  # nobody writes: it returns when the supervisor has closed or died
        os._exit(1)


def die_with_parent() -> None:
    """From now on Linux kills this process when the thread that started it ends. Elsewhere this does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
