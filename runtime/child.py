"""The supervisor's end of one role's process."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import ConfigError, Unavailable

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
    """A role, the command line that starts it, and the descriptors that its process inherits."""

    role: str
    argv: Sequence[str]
    fds: Sequence[int]


class Child:
    """A process started by exec. The last of its log lines are kept."""

    def __init__(
        self, role: str, process: asyncio.subprocess.Process, ready: _Pipe, output: _Pipe, listener: Listener
    ) -> None:
        self.role = role
        self._process = process
        self._ready = ready
        self._output = output
        self._listener = listener
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._num_beats = 0
        self._hung: str | None = None
        self._answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._hearing = asyncio.create_task(self._hear())
        self._pumping = asyncio.create_task(self._pump())

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, command: Command, listener: Listener) -> "Child":
        """Start it, with the descriptor of its pipe to us appended. Raises ConfigError when it cannot be executed."""
        ready, output = await _Pipe.open(), await _Pipe.open()
        role, argv, fds = command
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                *("--ready-fd", str(ready.write_fd)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_fd,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(*fds, ready.write_fd),
                # A Ctrl-C in the terminal reaches the supervisor only, which drains in order. In its session, for when
                # that is lost, the kernel wakes and hangs up a group that is stopped, also before it has a lifeline.
                process_group=0,
            )
        except OSError as error:
            raise ConfigError(f"cannot start the {role} with {argv[0]}: {error.strerror}") from None
        finally:
            os.close(ready.write_fd)
            os.close(output.write_fd)
        return cls(role, process, ready, output, listener)

    async def ready(self) -> dict[str, str]:
        """What the role announced. Raises ConfigError when it refused, Unavailable when it ended instead."""
        either: list[asyncio.Future[Any]] = [self._answer, self._hearing]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._answer.done():
            raise Unavailable(await self.ended())
        answer = self._answer.result()
        if "refused" in answer:
            raise ConfigError(f"{self.role}: {answer['refused']}")
        return {str(name): str(value) for name, value in answer["ready"].items()}

    async def ended(self) -> str:
        """Once the process has ended: how, and its last log lines."""
        await self._process.wait()
        await asyncio.wait({self._pumping}, timeout=_LAST_WORDS_S)
        said = "".join(f"\n    {line}" for line in self._last_lines) or " nothing"
        return f"the {self.role} {self._fate()}; it last said:{said}"

    async def kill_when_silent(self, limit_s: float) -> None:
        """Kill it once it has not beaten for `limit_s`; only after `ready`.

        Looks several times, so that a machine or a supervisor that stood still itself takes nobody for dead.
        """
        num_silent = 0
        while num_silent < _NUM_LOOKS:
            num_before = self._num_beats
            await asyncio.sleep(limit_s / _NUM_LOOKS)
            num_silent = num_silent + 1 if self._num_beats == num_before else 0
        self._hung = f"made no progress for {limit_s:g} s and was killed"
        await self.kill()

    async def stop(self, bound_s: float, number: signal.Signals = signal.SIGTERM) -> str | None:
        """Signal it, then SIGKILL after `bound_s`. What went wrong, if something did."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                # Not asyncio's send_signal, which may take away the status of one that has ended.
                os.kill(self._process.pid, number)
        try:
            await asyncio.wait_for(self._process.wait(), bound_s)
        except TimeoutError:
            await self.kill()
            return f"the {self.role} did not end within {bound_s:g} s and was killed"
        clean = self._process.returncode in (0, -signal.SIGTERM, -number)
        return None if clean else f"the {self.role} {self._fate()}"

    async def kill(self) -> None:
        """End the process and all that it started, now. Idempotent."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await self._process.wait()
        await asyncio.wait({self._pumping}, timeout=_LAST_WORDS_S)
        for pipe in (self._ready, self._output):
            pipe.transport.close()  # another process may hold the other end, and live

    def _fate(self) -> str:
        if self._hung is not None:
            return self._hung
        status = self._process.returncode
        if status is not None and status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"exited with status {status}"

    async def _hear(self) -> None:
        """Take its messages, until it closes the pipe."""
        while line := await self._ready.reader.readline():
            match message := json.loads(line):
                case {"ready": _} | {"refused": _}:
                    self._answer.set_result(message)
                case {"drain": _}:
                    self._listener.drain()
                case {"beat": _}:
                    self._num_beats += 1

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
