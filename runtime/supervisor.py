"""`jetway serve`: starts executor, scheduler and gateway as processes, and ends with them. Imports no grpc.

A role that dies takes the others with it: nothing is restarted.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .child import Child
from .config import ServeConfig
from .directory import config_file, runtime_directory
from .errors import ConfigError, Unavailable
from .layers import Resolved
from .logs import Console
from .stop_signals import StopSignals

ROLES = ("executor", "scheduler", "gateway")  # started in this order, stopped in the reverse
LAST_WORDS_S = 2.0  # what the gateway gets when another role is lost
GRACE_S = 5.0  # what a role gets to end, after its draining
EPOCH = 1  # nothing is restarted, so the executor has one life

RoleCommand = Callable[[str], list[str]]  # role to command line


def role_command(config: ServeConfig) -> RoleCommand:
    """The commands of this installation; the executor may run in another environment."""
    pythons = dict.fromkeys(ROLES, sys.executable) | {"executor": config.executor.python or sys.executable}
    return lambda role: [pythons[role], "-m", "jetway.runtime.role", role]


class Supervisor:
    """Owns the three processes and their runtime directory."""

    def __init__(self, resolved: Resolved, command: RoleCommand, console: Console) -> None:
        self._resolved = resolved
        self._config = resolved.config
        self._command = command
        self._console = console
        self._children: list[Child] = []

    async def run(self) -> int:
        """Serve until a signal or a loss. Returns the exit status: 0 after a clean stop. Raises ConfigError."""
        signals = StopSignals()
        with runtime_directory() as directory, _lifeline() as lifeline_fd:
            config_file(directory).write_text(self._resolved.to_yaml(), encoding="utf-8")
            try:
                await signals.until_next(self._serve(directory, lifeline_fd))  # ends with a signal or an error only
                return 0 if await signals.until_next(self._drain()) else 1
            except Unavailable as error:
                self._console.say(error.message)
                await self._let_clients_know()
                return 1
            finally:
                for child in self._children:
                    await child.kill()

    async def _serve(self, directory: Path, lifeline_fd: int) -> None:
        """Start the roles and wait. Raises Unavailable when one is lost, ConfigError when one refuses."""
        try:
            async with asyncio.TaskGroup() as watchers:
                await self._start_all(directory, lifeline_fd, watchers)
        except ExceptionGroup as group:
            ours, others = group.split((ConfigError, Unavailable))
            if others or not ours:
                raise
            raise min(ours.exceptions, key=lambda error: isinstance(error, Unavailable)) from None  # a refusal first

    async def _start_all(self, directory: Path, lifeline_fd: int, watchers: asyncio.TaskGroup) -> None:
        started_s = time.monotonic()
        limit_s = self._config.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                for role in ROLES:
                    await self._start(role, directory, lifeline_fd, watchers)
        except TimeoutError:
            raise Unavailable(f"not ready within start_timeout_s, which is {limit_s:g}") from None
        self._console.say(f"ready in {time.monotonic() - started_s:.1f} s; Ctrl-C stops")

    async def _start(self, role: str, directory: Path, lifeline_fd: int, watchers: asyncio.TaskGroup) -> None:
        """Start one role, let its end be the end of `watchers`, and wait until it serves."""
        started_s = time.monotonic()
        argv = [*self._command(role), "--config", str(config_file(directory)), "--epoch", str(EPOCH)]
        child = await Child.start(role, argv, lifeline_fd, partial(self._console.relay, role))
        self._children.append(child)
        watchers.create_task(child.ended())
        facts = await child.ready()
        self._console.say(f"{role} ready in {time.monotonic() - started_s:.1f} s")
        for name, value in facts.items():
            self._console.say(f"  {name:8} {value}")

    async def _drain(self) -> None:
        """Stop the gateway first, so that its streams can end. Raises Unavailable when a role did not stop cleanly."""
        self._console.say("stopping: open requests may end; a second signal stops at once")
        problems = []
        for child in reversed(self._children):
            drain_s = self._config.drain_timeout_s if child.role == "gateway" else 0.0
            problems.append(await child.stop(drain_s + GRACE_S))
        if any(problems):
            raise Unavailable("; ".join(problem for problem in problems if problem))

    async def _let_clients_know(self) -> None:
        """A role is lost: with the others gone too, the gateway ends its clients' calls as Unavailable."""
        for child in self._children:
            if child.role != "gateway":
                await child.kill()
        for child in self._children:
            await child.stop(LAST_WORDS_S)


@contextmanager
def _lifeline() -> Iterator[int]:
    """The descriptor that every child watches; it closes when this process ends, in whatever way."""
    child_fd, own_fd = os.pipe()
    try:
        yield child_fd
    finally:
        os.close(own_fd)
        os.close(child_fd)
