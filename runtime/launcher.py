"""One life of a role: a process with an epoch and a socket of its own."""

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import directory as places
from .child import Child, Command, Listener
from .config import ServeConfig
from .directory import LifeRecord
from .doors import Doors
from .errors import Unavailable
from .logs import Console
from .mpirun import start_ranks

GATEWAY = "gateway"
ROLES = ("executor", "scheduler", GATEWAY)  # started in this order, stopped in the reverse

RoleCommand = Callable[[str], list[str]]  # role to command line


def role_command(config: ServeConfig, num_ranks: int = 1) -> RoleCommand:
    """The commands of this installation; the executor may run in another environment, and as several ranks.

    Raises ConfigError when these cannot be started.
    """
    module = "jetway.runtime.role"
    commands = {name: [sys.executable, "-m", module, name] for name in ROLES}
    executor = [config.executor.python or sys.executable, "-m", module, "executor"]
    commands["executor"] = start_ranks(executor, config.executor, num_ranks)
    return commands.__getitem__


class Life:
    """A started process, until nothing of it is left."""

    def __init__(self, child: Child, epoch: int, directory: Path) -> None:
        self.child = child
        self._epoch = epoch
        self._directory = directory

    async def ready(self, timeout_s: float, num_restarts: int) -> dict[str, str]:
        """Wait until it serves, and let the others find it, as the successor of so many; what it announced.

        Raises ConfigError when it refused, Unavailable when it ended, took longer or cannot be put on record.
        """
        try:
            async with asyncio.timeout(timeout_s):
                facts = await self.child.ready()
        except TimeoutError:
            message = f"the {self.child.role} was not ready within start_timeout_s, which is {timeout_s:g}"
            raise Unavailable(message) from None
        record = LifeRecord(self.child.role, self._epoch, self.child.pids, num_restarts, time.monotonic())
        try:
            places.enter(self._directory, record)
        except OSError as error:  # a full disk, which may have room at the next attempt
            message = f"the {self.child.role} cannot be entered in {self._directory}: {error.strerror}"
            raise Unavailable(message) from error
        return facts

    async def ended(self, hang_timeout_s: float) -> str:
        """How it ended, once it has; it is killed when it hangs. Only after `ready`."""
        watching = asyncio.create_task(self.child.kill_when_silent(hang_timeout_s))
        try:
            return await self.child.ended()
        finally:
            watching.cancel()

    async def end(self) -> None:
        """Kill what is left: nobody finds it, and nothing holds the device. Idempotent."""
        places.leave(self._directory, self.child.role, self._epoch)
        await self.child.kill()


@dataclass(frozen=True, slots=True)
class Premises:
    """What the processes of one `jetway serve` share."""

    directory: Path
    doors: Doors


class Launcher:
    """Starts lives, each with a greater epoch than all before it. A child that is told to drain everything tells `drain`."""

    def __init__(self, command: RoleCommand, premises: Premises, console: Console, drain: Callable[[], None]) -> None:
        self._command = command
        self._premises = premises
        self._console = console
        self._drain = drain
        self._epochs = itertools.count(1)

    async def launch(self, role: str) -> Life:
        """Raises ConfigError when the command cannot be executed, Unavailable when the directory is full."""
        directory = self._premises.directory
        epoch = next(self._epochs)
        argv = [*self._command(role), "--config", str(places.config_file(directory)), "--epoch", str(epoch)]
        fds = []
        if role == GATEWAY:
            fds = [self._premises.doors.http.fileno(), self._premises.doors.grpc.fileno()]
            argv += ["--door-fds", *map(str, fds)]
        listener = Listener(partial(self._console.relay, role), self._drain)
        command = Command(role, argv, fds, places.lifelines_socket(directory, epoch))
        return Life(await Child.start(command, listener), epoch, directory)
