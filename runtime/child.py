"""The supervisor's end of one role's process."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ConfigError, Unavailable
from .lifelines import Lifelines

_KEPT_LINES = 20
_LONGEST_LINE_BYTES = 1 << 20  # what is longer becomes several lines
_LAST_WORDS_S = 1.0  # how long to wait for log lines of a process that has ended
_NUM_LOOKS = 4  # within a hang timeout


class _Pipe(NamedTuple):
    """Ours to read; the child gets the descriptor. Of ours, for asyncio's own would make `wait` wait for its end too."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport
    write_fd: int

    @classmethod
    async def open(cls) -> "_Pipe":
        read_fd, write_fd = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb", 0)
        )
        return cls(reader, transport, write_fd)


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears a child. It must neither wait nor fail: a process whose lines nobody takes would soon stand still."""

    log: Callable[[str], None]  # a line that it wrote
    drain: Callable[[], None]  # it was told that everything shall drain and stop


class Command(NamedTuple):
    """A role, the command line that starts it, the descriptors that its process inherits, and where its lifelines meet."""

    role: str
    argv: Sequence[str]
    fds: Sequence[int]
    lifeline: Path


class Child:
    """A process started by exec, or mpirun with the ranks that it starts. The last of its log lines are kept."""

    def __init__(
        self, role: str, process: asyncio.subprocess.Process, lifelines: Lifelines, output: _Pipe, listener: Listener
    ) -> None:
        self.role = role
        self._process = process
        self._lifelines = lifelines
        self._output = output
        self._listener = listener
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._hung: str | None = None
        self._pumping = asyncio.create_task(self._pump())

    @property
    def pids(self) -> list[int]:
        """Of the role's processes that live, rank 0 first. Before any of them is tied to us: of what was started."""
        return self._lifelines.pids or [self._process.pid]

    @classmethod
    async def start(cls, command: Command, listener: Listener) -> "Child":
        """Start it, with the place of its lifelines appended.

        Raises ConfigError when it cannot be executed, Unavailable when that place takes no socket.
        """
        role, argv, fds, place = command
        lifelines = Lifelines(place, listener.drain)
        output = await _Pipe.open()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                *("--lifeline", str(place)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_fd,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=fds,
                # A Ctrl-C in the terminal reaches the supervisor only, which drains in order. In its session, for when
                # that is lost, the kernel wakes and hangs up a group that is stopped, also before it has a lifeline.
                process_group=0,
            )
        except OSError as error:
            await lifelines.kill(0.0)
            raise ConfigError(f"cannot start the {role} with {argv[0]}: {error.strerror}") from None
        finally:
            os.close(output.write_fd)
        return cls(role, process, lifelines, output, listener)

    async def ready(self) -> dict[str, str]:
        """What the role announced. Raises ConfigError when it refused, Unavailable when it ended instead."""
        ending = asyncio.create_task(self.ended())
        either: list[asyncio.Future[Any]] = [self._lifelines.answer, ending]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._lifelines.answer.done():
                raise Unavailable(await ending)
        finally:
            ending.cancel()
        answer = self._lifelines.answer.result()
        if "refused" in answer:
            raise ConfigError(f"{self.role}: {answer['refused']}")
        return {str(name): str(value) for name, value in answer["ready"].items()}

    async def ended(self) -> str:
        """Once the process has ended, or one of its ranks: how, and its last log lines."""
        ending = asyncio.create_task(self._process.wait())
        either: list[asyncio.Future[Any]] = [self._lifelines.lost, ending]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({ending, self._pumping}, timeout=_LAST_WORDS_S)
        finally:
            ending.cancel()
        self._lifelines.hear_out()
        said = "".join(f"\n    {line}" for line in self._last_lines) or " nothing"
        return f"the {self.role} {self._fate()}; it last said:{said}"

    async def kill_when_silent(self, limit_s: float) -> None:
        """Kill it once it has not beaten for `limit_s`; only after `ready`.

        Looks several times, so that a machine or a supervisor that stood still itself takes nobody for dead.
        """
        num_silent = 0
        while num_silent < _NUM_LOOKS:
            num_before = self._lifelines.num_beats
            await asyncio.sleep(limit_s / _NUM_LOOKS)
            num_silent = num_silent + 1 if self._lifelines.num_beats == num_before else 0
        self._hung = f"made no progress for {limit_s:g} s and was killed"
        await self.kill()

    async def stop(self, bound_s: float, number: signal.Signals = signal.SIGTERM) -> str | None:
        """Signal it, then SIGKILL after `bound_s`. What went wrong, if something did."""
        if self._process.returncode is None:
            # Rank 0, not mpirun, which may kill the others before they end. And not by asyncio's send_signal, which may
            # take away the status of one that has ended.
            first = self.pids[0] if self._lifelines.answer.done() else self._process.pid
            with suppress(ProcessLookupError):
                os.kill(first, number)
        try:
            await asyncio.wait_for(self._process.wait(), bound_s)
        except TimeoutError:
            await self.kill()
            return f"the {self.role} did not end within {bound_s:g} s and was killed"
        # How mpirun tells of ranks that ended by a signal, while they load and do not handle it, is its own affair.
        clean = self._process.returncode in (0, -signal.SIGTERM, -number) or not self._lifelines.answer.done()
        return None if clean else f"the {self.role} {self._fate()}"

    async def kill(self) -> None:
        """End the process and all that it started, now. Idempotent."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._lifelines.kill(_LAST_WORDS_S)  # mpirun gives each rank a group of its own
        await self._process.wait()
        await asyncio.wait({self._pumping}, timeout=_LAST_WORDS_S)
        self._output.transport.close()  # another process may hold the other end, and live

    def _fate(self) -> str:
        if self._hung is not None:
            return self._hung
        status = self._process.returncode
        if status is not None and status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        if self._lifelines.are_several and self._lifelines.lost.done() and status != 0:
            return f"lost {self._lifelines.lost.result()}"
        return "has let its lifeline go" if status is None else f"exited with status {status}"

    async def _pump(self) -> None:
        rest = b""
        while chunk := await self._output.reader.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._keep(line)
        if rest:
            self._keep(rest)

    def _keep(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._last_lines.append(text)
        self._listener.log(text)
