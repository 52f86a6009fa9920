"""`jetway serve` and its like as real processes."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Self

import psutil


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Running:
    """A started program. `out` is what was read of its output so far."""

    def __init__(self, process: "subprocess.Popen[str]", out: IO[str], err: IO[bytes]) -> None:
        self._process = process
        self._out = out
        self._err = err
        self.out = ""

    @classmethod
    @contextmanager
    def start(cls, argv: Sequence[str | Path], runtime_parent: Path, **settings: str) -> Iterator[Self]:
        """Runs it until the end of the block; `settings` reach it as JETWAY_ variables."""
        environ = {f"JETWAY_{name.upper()}": value for name, value in settings.items()}
        environ = {**os.environ, **environ, "XDG_RUNTIME_DIR": str(runtime_parent)}
        with (
            tempfile.TemporaryFile() as err,
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, text=True, env=environ) as process,
        ):
            assert process.stdout is not None
            try:
                yield cls(process, process.stdout, err)
            finally:
                process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, text: str, *, times: int = 1) -> None:
        """Read on until the output holds `text` so often."""
        while self.out.count(text) < times:
            line = self._out.readline()
            assert line, f"{text!r} did not come {times} times; {self.end()}"
            self.out += line

    def facts(self, name: str) -> list[str]:
        """What the roles announced under this name."""
        return re.findall(rf"^  {name} +(.*)$", self.out, re.MULTILINE)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> Ended:
        """Wait for the end."""
        self.out += self._out.read()
        status = self._process.wait()
        self._err.seek(0)
        return Ended(status, self.out, self._err.read().decode())


def through_shell(argv: Sequence[str | Path], redirect: str) -> list[str | Path]:
    """The same command with a shell's redirection, in the same process."""
    return ["sh", "-c", f'exec {redirect}; exec "$@"', "sh", *argv] if redirect else list(argv)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
