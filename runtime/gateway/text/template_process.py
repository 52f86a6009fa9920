"""Chats to the model's text, by a process that may be killed: the gateway's end of it."""

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jetway.runtime.errors import ConfigError, Internal, InvalidArgument
from jetway.runtime.gateway.call import Message

from .template_worker import LENGTH

log = logging.getLogger(__name__)

CPU_S = 2.0  # for one rendering; the longest chat of a usual template takes a fraction
_WALL_S = 30.0  # a busy machine may need it; a process that stands still has no CPU time that could run out
_ATTEMPTS = 2  # at a start, or for a chat, whose process somebody else has killed
_COMMAND = (sys.executable, "-P", "-m", "jetway.runtime.gateway.text.template_worker")


class _Lost(Exception):
    """The process has ended, and not because of its limits."""


@dataclass(frozen=True, slots=True)
class _Job:
    chat: bytes
    text: asyncio.Future[str]


class TemplateProcess:
    """Renders one chat after another with the template `source`, in a process that is replaced when it ends.

    `special_tokens` are as for ChatTemplate; `cpu_s` bounds the parsing, and each rendering. A call that is cancelled costs the others nothing.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str], cpu_s: float = CPU_S) -> None:
        self._cpu_s = cpu_s
        self._setup = json.dumps({"source": source, "special_tokens": special_tokens, "cpu_s": cpu_s}).encode()
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()  # bounded by the calls that may be open
        self._process: Process | None = None

    async def start(self) -> None:
        """Raises ConfigError where the template does not parse within the limits, or no process can be started."""
        for _ in range(_ATTEMPTS):
            try:
                await self._running()
            except _Lost:
                continue
            except InvalidArgument as error:
                raise ConfigError(f"the chat template does not parse within {self._cpu_s:g} s of CPU time") from error
            self._serving = asyncio.create_task(self._serve())
            return
        raise ConfigError("the process that renders chats was lost before it had parsed the chat template")

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        await self._end()

    async def render(self, messages: Sequence[Message], max_chars: int) -> str:
        """The prompt, up to where the assistant's answer begins. Raises InvalidArgument where the template refuses, or
        makes more than `max_chars` of it, or takes too long.
        """
        chat = {"messages": [message._asdict() for message in messages], "max_chars": max_chars}
        job = _Job(json.dumps(chat).encode(), asyncio.get_running_loop().create_future())
        self._jobs.put_nowait(job)
        return await job.text

    async def _serve(self) -> None:
        while True:
            job = await self._jobs.get()
            if job.text.done():  # whoever asked has gone
                continue
            try:
                text = await self._render(job.chat)
            except Exception as error:  # noqa: BLE001  # whoever asked raises it, and the next has its turn
                if not job.text.done():
                    job.text.set_exception(error)
            else:
                if not job.text.done():
                    job.text.set_result(text)

    async def _render(self, chat: bytes) -> str:
        for _ in range(_ATTEMPTS):
            try:
                answer = await self._ask(await self._running(), chat)
            except _Lost:
                log.warning("the process that renders chats was lost; starting another")
                continue
            except ConfigError as error:  # the settings were right: it has started before
                raise Internal(error.message) from error
            if "refused" in answer:
                raise InvalidArgument(answer["refused"], param="messages")
            return str(answer["text"])
        raise Internal("the process that renders chats was lost")

    async def _running(self) -> Process:
        """The process, begun again if it has ended. Raises ConfigError and what `_ask` raises."""
        if self._process is None:
            try:
                self._process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=PIPE, stdout=PIPE)
            except OSError as error:
                raise ConfigError(f"cannot start {sys.executable} to render chats: {error.strerror}") from error
            answer = await self._ask(self._process, self._setup)
            if "refused" in answer:
                await self._end()
                raise ConfigError(answer["refused"])
        return self._process

    async def _ask(self, process: Process, message: bytes) -> dict[str, Any]:
        """One frame there, one back. Raises InvalidArgument when it ran into its limits, _Lost when it is gone."""
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            async with asyncio.timeout(_WALL_S):
                if process.stdin.is_closing():  # uvloop would raise RuntimeError
                    raise BrokenPipeError
                process.stdin.write(LENGTH.pack(len(message)) + message)
                head = await process.stdout.readexactly(LENGTH.size)
                answer: dict[str, Any] = json.loads(await process.stdout.readexactly(*LENGTH.unpack(head)))
                return answer
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
            if await self._end() != -signal.SIGPROF:
                raise _Lost from error
            raise InvalidArgument(
                f"the model's chat template takes more than {self._cpu_s:g} s of CPU time on these messages",
                param="messages",
            ) from error

    async def _end(self) -> int | None:
        """Kill it unless it has ended. Its return code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(
                    process.pid, signal.SIGKILL
                )  # asyncio's `kill` may take away the return code of one that has ended
        return await process.wait()
