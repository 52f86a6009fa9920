"""One life of a role: a process with an epoch and a socket of its own."""

import asyncio
import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import directory as places
from .child import Child
from .config import ServeConfig
from .errors import Unavailable
from .logs import Console

ROLES = ("executor", "scheduler", "gateway")  # started in this order, stopped in the reverse

RoleCommand = Callable[[str], list[str]]  # role to command line


def role_command(config: ServeConfig) -> RoleCommand:
    """The commands of this installation; the executor may run in another environment."""
    pythons = dict.fromkeys(ROLES, sys.executable) | {"executor": config.executor.python or sys.executable}
    return lambda role: [pythons[role], "-m", "jetway.runtime.role", role]


class Life:
    """A started process, until nothing of it is left."""

    def __init__(self, child: Child, epoch: int, directory: Path) -> None:
        self.child = child
        self.epoch = epoch
        self._directory = directory

    async def ready(self, timeout_s: float) -> dict[str, str]:
        """Wait until it serves, and let the others find it; what it announced.

        Raises ConfigError when it refused, Unavailable when it ended or took longer.
        """
        try:
            async with asyncio.timeout(timeout_s):
                facts = await self.child.ready()
        except TimeoutError:
            message = f"the {self.child.role} was not ready within start_timeout_s, which is {timeout_s:g}"
            raise Unavailable(message) from None
        places.enter(self._directory, self.child.role, self.epoch)
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
        places.leave(self._directory, self.child.role, self.epoch)
        await self.child.kill()


class Launcher:
    """Starts lives, each with a greater epoch than all before it."""

    def __init__(self, command: RoleCommand, directory: Path, lifeline_fd: int, console: Console) -> None:
        self._command = command
        self._directory = directory
        self._lifeline_fd = lifeline_fd
        self._console = console
        self._epochs = itertools.count(1)

    async def launch(self, role: str) -> Life:
        """Raises ConfigError when the command cannot be executed."""
        epoch = next(self._epochs)
        argv = [*self._command(role), "--config", str(places.config_file(self._directory)), "--epoch", str(epoch)]
        child = await Child.start(role, argv, self._lifeline_fd, partial(self._console.relay, role))
        return Life(child, epoch, self._directory)
