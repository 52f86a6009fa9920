"""Ranks over MPI, each started by mpirun."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jetway.runtime.errors import ConfigError, EngineFailed

from .ranks import Channel

if TYPE_CHECKING:
    from mpi4py import MPI

SHORTEST_PAUSE_S = 50e-6
LONGEST_PAUSE_S = 5e-3
SENDING_PAUSE_S = 200e-6  # between two parts of a large message, of some 64 KB


class MpiRanks:
    """This process among those that one mpirun has started. See Ranks.

    MPI waits by looking without a pause; here a receiver pauses between its looks. What is too large to go at once moves on
    only while its sender calls MPI: a thread does, as nobody else may. That a rank is lost MPI does not say: mpirun and the
    supervisor then end the others.
    """

    def __init__(self, world: "MPI.Intracomm") -> None:
        self.rank = world.rank
        self.size = world.size
        self._world = world
        self._failure: EngineFailed | None = None  # of what the thread moves on
        self._unsent: list[MPI.Request] = []
        self._sending = threading.Condition()  # guards `_unsent`
        threading.Thread(target=self._move_on, name="sending", daemon=True).start()

    @classmethod
    def join(cls, size: int) -> "MpiRanks":
        """Meet the other ranks, once in a process; returns once all are here. Raises ConfigError unless there are `size`."""
        try:
            import mpi4py

            mpi4py.rc.finalize = False  # at exit it would wait for all ranks, also after a fault
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # RuntimeError: it finds no MPI library
            raise ConfigError(
                f"several ranks need mpi4py and an MPI library; install jetway-llm[mpi]: {error}"
            ) from error
        library = " ".join(re.split(r"[,\n]", MPI.Get_library_version())[0].split())
        if MPI.COMM_WORLD.size != size:
            raise ConfigError(
                f"{size} ranks were started, but MPI counts {MPI.COMM_WORLD.size}: mpirun is of another MPI than mpi4py's, "
                f"which is {library}; name that one's as executor.mpirun"
            )
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ConfigError(f"MPI must serve several threads at once (MPI_THREAD_MULTIPLE); {library} does not")
        with _translated():
            return cls(MPI.COMM_WORLD.Dup())  # apart from messages of a plugin that uses MPI too

    def send(self, message: bytes, to: int, channel: Channel) -> None:
        with _translated(), self._sending:
            if self._failure is not None:
                raise self._failure
            request = self._world.Isend(message, to, channel)
            if not request.Test():
                self._unsent.append(request)
                self._sending.notify()

    def receive(self, source: int, channel: Channel) -> bytes:
        from mpi4py import MPI

        status = MPI.Status()
        began_s = time.monotonic()
        with _translated():
            while (arrived := self._world.Improbe(source, channel, status)) is None:
                time.sleep(pause_s(time.monotonic() - began_s))
            message = bytearray(status.Get_count())
            arrived.Recv(message)
            return bytes(message)

    def leave(self) -> None:
        """Return once all messages are sent and all ranks leave. In order only: after a fault nobody may wait for them."""
        from mpi4py import MPI

        with _translated(), self._sending:
            MPI.Request.Waitall(self._unsent)
            self._unsent = []  # and so nothing that the thread would ask MPI
            MPI.Finalize()

    def _move_on(self) -> None:
        """For ever: look after what is unsent."""
        try:
            with _translated():
                while True:
                    with self._sending:
                        self._sending.wait_for(lambda: self._unsent)
                    while self._has_unsent():
                        time.sleep(SENDING_PAUSE_S)
        except EngineFailed as failure:
            self._failure = failure  # raised again by whoever sends

    def _has_unsent(self) -> bool:
        """Whether something still is; what has gone is forgotten."""
        with self._sending:
            self._unsent = [request for request in self._unsent if not request.Test()]
            return bool(self._unsent)


def pause_s(waited_s: float) -> float:
    """The pause after a wait of so long: hardly an addition to it, and long enough when there is nothing to do."""
    return min(max(waited_s / 64, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)


@contextmanager
def _translated() -> Iterator[None]:
    """MPI's errors are the engine's."""
    from mpi4py import MPI

    try:
        yield
    except MPI.Exception as error:
        raise EngineFailed(f"the ranks cannot speak to each other: {error}") from error
