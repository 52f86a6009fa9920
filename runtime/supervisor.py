"""`jetway serve`: starts executor, scheduler and gateway as processes, and keeps them alive. Imports no grpc."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .directory import config_file, runtime_directory
from .errors import ConfigError, JetwayError, Unavailable
from .launcher import ROLES, Launcher, RoleCommand
from .layers import Resolved
from .lives import Lives
from .logs import Console
from .stop_signals import StopSignals

LAST_WORDS_S = 2.0  # what the gateway gets when another role is lost for good
GRACE_S = 5.0  # what a role gets to end, after its draining


class Supervisor:
    """Owns the processes and their runtime directory."""

    def __init__(self, resolved: Resolved, command: RoleCommand, console: Console) -> None:
        self._resolved = resolved
        self._config = resolved.config
        self._command = command
        self._console = console
        self._roles: list[Lives] = []  # those that were started, in order

    async def run(self) -> int:
        """Serve until a signal or a loss for good. Returns the exit status: 0 after a clean stop. Raises ConfigError."""
        signals = StopSignals()
        with runtime_directory() as directory, _lifeline() as lifeline_fd:
            config_file(directory).write_text(self._resolved.to_yaml(), encoding="utf-8")
            launcher = Launcher(self._command, directory, lifeline_fd, self._console)
            try:
                if await signals.until_next(self._start_all(launcher)):
                    return await self._serve(signals)
                return await self._drain(signals)
            except Unavailable as error:
                self._console.say(error.message)
                await self._let_clients_know()
                return 1
            finally:
                for role in self._roles:
                    await role.end()

    async def _start_all(self, launcher: Launcher) -> None:
        """Start the roles. Raises ConfigError when one refuses.

        Raises Unavailable when one is lost before all are ready, for then something is wrong from the start.
        """
        started_s = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                guards = []
                for name in ROLES:
                    role = Lives(name, launcher, self._config, self._console)
                    self._roles.append(role)
                    await role.start()
                    guards.append(group.create_task(role.lost()))
                for guard in guards:
                    guard.cancel()
        except ExceptionGroup as group_error:
            raise _first(group_error) from None
        self._console.say(f"ready in {time.monotonic() - started_s:.1f} s; Ctrl-C stops")

    async def _serve(self, signals: StopSignals) -> int:
        """Keep the roles alive until a signal, and while they drain. Raises Unavailable when one is lost for good."""
        keeping = asyncio.create_task(self._keep_all())
        try:
            await signals.until_next(_shielded(keeping))
            return await self._drain(signals)
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})

    async def _keep_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for role in self._roles:
                    group.create_task(role.keep())
        except ExceptionGroup as group_error:
            raise _first(group_error) from None

    async def _drain(self, signals: StopSignals) -> int:
        """Stop the roles; a signal ends the waiting. Raises Unavailable when one did not stop cleanly."""
        self._console.say("stopping: open requests may end; a second signal stops at once")
        return 0 if await signals.until_next(self._stop_all()) else 1

    async def _stop_all(self) -> None:
        """The gateway first, so that its streams can end."""
        problems = []
        for role in reversed(self._roles):
            drain_s = self._config.drain_timeout_s if role.name == "gateway" else 0.0
            problems.append(await role.stop(drain_s + GRACE_S))
        if any(problems):
            raise Unavailable("; ".join(problem for problem in problems if problem))

    async def _let_clients_know(self) -> None:
        """With the others gone too, the gateway ends its clients' calls as Unavailable."""
        gateways = [role for role in self._roles if role.name == "gateway"]
        for role in self._roles:
            if role not in gateways:
                await role.end()
        for role in gateways:
            await role.stop(LAST_WORDS_S)


def _first(group: "ExceptionGroup[Exception]") -> JetwayError:
    """The error that explains the others: a refusal, if there is one. Raises the group when it holds a fault of ours."""
    ours, others = group.split((ConfigError, Unavailable))
    if others is not None or ours is None:
        raise group
    first = min(ours.exceptions, key=lambda error: isinstance(error, Unavailable))
    assert isinstance(first, JetwayError)
    return first


async def _shielded(task: "asyncio.Task[None]") -> None:
    """The task's end; a cancellation does not reach it."""
    await asyncio.shield(task)


@contextmanager
def _lifeline() -> Iterator[int]:
    """The descriptor that every child watches; it closes when this process ends, in whatever way."""
    child_fd, own_fd = os.pipe()
    try:
        yield child_fd
    finally:
        os.close(own_fd)
        os.close(child_fd)
