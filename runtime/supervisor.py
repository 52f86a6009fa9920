"""`jetway serve`: starts executor, scheduler and gateways as processes, and keeps them alive. Imports no grpc."""

import asyncio
import signal
import time
from contextlib import closing

from .directory import runtime_directory, write_config
from .doors import Doors, open_doors
from .errors import ConfigError, JetwayError, Unavailable
from .launcher import GATEWAY, ROLES, Launcher, Premises, RoleCommand
from .layers import Resolved
from .listeners import turn_away
from .lives import Lives
from .logs import Console
from .signals import Signals

LAST_WORDS_S = 2.0  # what the gateway gets when another role is lost for good
GRACE_S = 5.0  # what a role gets to end, after its draining


class Supervisor:
    """Owns the processes, their runtime directory and the ports."""

    def __init__(self, resolved: Resolved, command: RoleCommand, console: Console) -> None:
        self._resolved = resolved
        self._config = resolved.config
        self._command = command
        self._console = console
        self._roles: list[Lives] = []  # all that may have a process, in the order of their start
        self._to_keep: asyncio.Queue[Lives] = asyncio.Queue()

    async def run(self) -> int:
        """Serve until a signal or a loss for good. Returns the exit status: 0 after a clean stop. Raises ConfigError."""
        signals = Signals()
        with (
            runtime_directory() as directory,
            closing(open_doors(self._config.gateway)) as doors,
        ):
            write_config(directory, self._resolved.to_yaml())
            premises = Premises(directory, doors)
            self._launcher = Launcher(self._command, premises, self._console, signals.stop)
            try:
                if await signals.until_next(self._start_all()):
                    return await self._serve(signals, doors)
                return await self._drain(signals, doors)
            except Unavailable as error:
                self._console.say(error.message)
                await self._let_clients_know()
                return 1
            finally:
                for role in self._roles:
                    await role.end()

    async def _start_all(self) -> None:
        """Start the roles. Raises ConfigError when one refuses.

        Raises Unavailable when one is lost before all are ready, for then something is wrong from the start.
        """
        started_s = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                guards = []
                for name in ROLES:
                    for _ in range(self._config.gateway.num_processes if name == GATEWAY else 1):
                        role = await self._start(name)
                        guards.append(group.create_task(role.lost()))
                for guard in guards:
                    guard.cancel()
        except ExceptionGroup as group_error:
            raise _first(group_error) from None
        self._console.say(f"ready in {time.monotonic() - started_s:.1f} s; Ctrl-C stops")

    async def _start(self, name: str) -> Lives:
        """Another process for the role, once it serves; from then on it is kept."""
        role = Lives(name, self._launcher, self._config, self._console)
        self._roles.append(role)
        try:
            await role.start()
        except (ConfigError, Unavailable):
            await self._remove(role)
            raise
        self._to_keep.put_nowait(role)
        return role

    async def _serve(self, signals: Signals, doors: Doors) -> int:
        """Keep the roles alive until a signal, and while they drain. Raises Unavailable when one is lost for good."""
        keeping = asyncio.create_task(self._keep_all())
        renewing = asyncio.create_task(self._renew_gateways(signals.renew))
        try:
            await signals.until_next(_shielded(keeping))
            renewing.cancel()
            status = await self._drain(signals, doors)
            if keeping.done():
                await keeping  # raises why one was lost for good
            return status
        finally:
            for task in (keeping, renewing):
                task.cancel()
            await asyncio.wait({keeping, renewing})

    async def _keep_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task((await self._to_keep.get()).keep())
        except ExceptionGroup as group_error:
            raise _first(group_error) from None

    async def _renew_gateways(self, wanted: asyncio.Event) -> None:
        """Whenever it is wanted, for ever: another process for each gateway, and when it serves, the old one may go.

        One that does not come to serve ends the attempt: what is there stays.
        """
        while True:
            await wanted.wait()
            wanted.clear()
            for old in self._gateways:
                try:
                    await self._start(GATEWAY)
                except (ConfigError, Unavailable) as error:
                    self._console.say(f"{error.message}\nthe gateways stay as they are")
                    break
                await self._retire(old)

    async def _retire(self, gateway: Lives) -> None:
        """It serves on until its clients have moved to the others, and lets open requests end."""
        bound_s = self._config.gateway.retreat_s + self._config.drain_timeout_s + GRACE_S
        if problem := await gateway.stop(bound_s, signal.SIGHUP):
            self._console.say(problem)
        await self._remove(gateway)

    async def _remove(self, role: Lives) -> None:
        await role.end()
        self._roles.remove(role)

    async def _drain(self, signals: Signals, doors: Doors) -> int:
        """Stop the roles; a signal ends the waiting. Raises Unavailable when one did not stop cleanly."""
        self._console.say("stopping: open requests may end; a second signal stops at once")
        return 0 if await signals.until_next(self._stop_all(doors)) else 1

    async def _stop_all(self, doors: Doors) -> None:
        """The gateways first, so that their streams can end; before them the door, so that they answer all who came in."""
        for gateway in self._gateways:
            gateway.begin_no_other()
        await turn_away(doors.http)
        doors.http.close()
        problems = await _stop(self._gateways, self._config.drain_timeout_s + GRACE_S)
        for role in reversed(self._others):
            problems += await _stop([role], GRACE_S)
        if problems:
            raise Unavailable("; ".join(problems))

    async def _let_clients_know(self) -> None:
        """With the others gone too, the gateways end their clients' calls as Unavailable."""
        for role in self._others:
            await role.end()
        await _stop(self._gateways, LAST_WORDS_S)

    @property
    def _gateways(self) -> list[Lives]:
        return [role for role in self._roles if role.name == GATEWAY]

    @property
    def _others(self) -> list[Lives]:
        return [role for role in self._roles if role.name != GATEWAY]


async def _stop(roles: list[Lives], bound_s: float) -> list[str]:
    """Let them end, all at once; what went wrong."""
    problems = await asyncio.gather(*(role.stop(bound_s) for role in roles))
    return [problem for problem in problems if problem]


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
