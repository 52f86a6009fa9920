"""The supervisor's end of one role's process."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence

from .errors import ConfigError, Unavailable

_KEPT_LINES = 20
_LAST_WORDS_S = 1.0  # how long to wait for log lines of a process that has ended


class Child:
    """A process started by exec: its log lines go to `log` as they come, and the last of them are kept."""

    def __init__(
        self,
        role: str,
        process: asyncio.subprocess.Process,
        ready: asyncio.StreamReader,
        log: Callable[[str], None],
    ) -> None:
        self.role = role
        self._process = process
        self._ready = ready
        self._log = log
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._pumping = asyncio.create_task(self._pump())

    @classmethod
    async def start(cls, role: str, argv: Sequence[str], lifeline_fd: int, log: Callable[[str], None]) -> "Child":
        """Start `argv` with its two file descriptors appended. Raises ConfigError when it cannot be executed."""
        ready_fd, child_fd = os.pipe()
        ready = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(ready), os.fdopen(ready_fd, "rb", 0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                *("--lifeline-fd", str(lifeline_fd), "--ready-fd", str(child_fd)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(lifeline_fd, child_fd),
                start_new_session=True,  # a Ctrl-C in the terminal reaches the supervisor only, which drains in order
            )
        except OSError as error:
            raise ConfigError(f"cannot start the {role} with {argv[0]}: {error.strerror}") from None
        finally:
            os.close(child_fd)
        return cls(role, process, ready, log)

    async def ready(self) -> dict[str, str]:
        """What the role announced. Raises ConfigError when it refused, Unavailable when it ended instead."""
        line = await self._ready.readline()
        if not line:
            await self.ended()
        message = json.loads(line)
        if "refused" in message:
            raise ConfigError(f"{self.role}: {message['refused']}")
        return {str(name): str(value) for name, value in message["ready"].items()}

    async def ended(self) -> None:
        """Return never: raises Unavailable with status and last log lines when the process has ended."""
        await self._process.wait()
        await asyncio.wait({self._pumping}, timeout=_LAST_WORDS_S)
        said = "".join(f"\n    {line}" for line in self._last_lines) or " nothing"
        raise Unavailable(f"the {self.role} {self._fate()}; it last said:{said}")

    async def stop(self, bound_s: float) -> str | None:
        """SIGTERM, then SIGKILL after `bound_s`. What went wrong, if something did."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), bound_s)
        except TimeoutError:
            await self.kill()
            return f"the {self.role} did not end within {bound_s:g} s and was killed"
        clean = self._process.returncode in (0, -signal.SIGTERM)
        return None if clean else f"the {self.role} {self._fate()}"

    async def kill(self) -> None:
        """End the process and all that it started, now. Idempotent."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session, so its own group
        except ProcessLookupError:
            pass
        await self._process.wait()
        await asyncio.wait({self._pumping}, timeout=_LAST_WORDS_S)

    def _fate(self) -> str:
        status = self._process.returncode
        if status is not None and status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"exited with status {status}"

    async def _pump(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while chunk := await self._process.stdout.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._keep(line)
        if rest:
            self._keep(rest)

    def _keep(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._last_lines.append(text)
        self._log(text)
