"""The supervisor's end of the lifelines of one life: a process has one, and so has each rank of an executor of several."""

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Unavailable

_LONGEST_MESSAGE_BYTES = 1 << 16
_PEER = struct.Struct("3i")  # pid, uid, gid: struct ucred of linux/socket.h


@dataclass(slots=True)
class _Process:
    pid: int
    rank: int = 0


class Lifelines:
    """Hears what the processes of a life say, from now to `kill`, which ends them. Made inside the running event loop.

    Each has a connection of its own, however it was started; what it says is one JSON object a packet, see Lifeline.
    `answer` is done once one has announced itself or refused, `lost` with a name once one is gone; `are_several` once
    one has said that it is one of several ranks. `drain` is called when one asks for it.
    """

    def __init__(self, path: Path, drain: Callable[[], None]) -> None:
        """Raises Unavailable when `path` takes no socket."""
        self._path = path
        self._drain = drain
        self._loop = asyncio.get_running_loop()
        self._processes: dict[socket.socket, _Process] = {}
        self._nobody = asyncio.Event()
        self.are_several = False
        self.num_beats = 0
        self.answer: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._listener = _listen(path)
        self._loop.add_reader(self._listener, self._accept)

    @property
    def pids(self) -> list[int]:
        """Of the processes that are here, by rank."""
        return [process.pid for process in sorted(self._processes.values(), key=lambda process: process.rank)]

    def hear_out(self) -> None:
        """Take all that was said up to now: of a process that has ended, everything."""
        if self._is_open:
            self._accept()
        for connection in [*self._processes]:
            self._hear(connection)

    async def kill(self, bound_s: float) -> None:
        """Kill whoever is here and let nobody in; return once they are gone, or after `bound_s`. Idempotent."""
        if self._is_open:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._path.unlink(missing_ok=True)
        for pid in self.pids:  # nobody else's: a process that is here is not gone
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._processes:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._nobody.wait(), bound_s)
        for connection in [*self._processes]:
            self._forget(connection)

    @property
    def _is_open(self) -> bool:
        return self._listener.fileno() >= 0

    def _accept(self) -> None:
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                self._processes[connection] = _Process(pid=_PEER.unpack(peer)[0])
                self._loop.add_reader(connection, self._hear, connection)

    def _hear(self, connection: socket.socket) -> None:
        with suppress(BlockingIOError):
            while packet := _receive(connection):
                self._take(self._processes[connection], json.loads(packet))
            self._forget(connection)

    def _take(self, process: _Process, message: Mapping[str, Any]) -> None:
        match message:
            case {"ready": _} | {"refused": _}:
                if not self.answer.done():  # the first of the ranks speaks for all
                    self.answer.set_result(message)
            case {"rank": rank}:
                process.rank = int(rank)
                self.are_several = True
            case {"drain": _}:
                self._drain()
            case {"beat": _}:
                self.num_beats += 1

    def _forget(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection)
        connection.close()
        process = self._processes.pop(connection)
        if not self.lost.done():
            self.lost.set_result(f"rank {process.rank} (pid {process.pid})")
        if not self._processes:
            self._nobody.set()


def _listen(path: Path) -> socket.socket:
    """Raises Unavailable when there is no room for it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)
    try:
        listener.bind(str(path))
    except OSError as error:  # a full disk, which may have room at the next attempt
        listener.close()
        raise Unavailable(f"nothing can be tied to {path}: {error.strerror}") from error
    listener.listen()
    return listener


def _receive(connection: socket.socket) -> bytes:
    """The next packet; empty when the process is gone."""
    try:
        return connection.recv(_LONGEST_MESSAGE_BYTES)
    except ConnectionError:
        return b""
