"""The process in which a chat template renders: `python -m jetway.runtime.gateway.text.template_worker`.

A template is a program from a stranger, fed with the words of strangers. Here it can neither stop the gateway nor eat its
memory: the kernel ends this process when a rendering takes too much CPU time, whoever else still lives by then,
and refuses it more than MEMORY_BYTES.

Frames, each a big-endian length of 4 bytes and JSON, come on standard input and go to standard output: first the
template with its limit and the answer whether it parses, then chats and their texts.
"""

import json
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jetway.runtime.errors import JetwayError
from jetway.runtime.lifeline import die_with_parent

from .template import ChatTemplate

MEMORY_BYTES = 1 << 30  # of address space
LENGTH = struct.Struct(">I")


def main() -> None:
    """Serve until standard input ends, or the gateway does: then even if this process is stopped."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the words of strangers
    setup = _read()
    if setup is None:
        return
    try:
        with _bounded(setup["cpu_s"]):
            template = ChatTemplate(setup["source"], setup["special_tokens"])
    except JetwayError as error:
        _write({"refused": error.message})
        return
    _write({})
    while (chat := _read()) is not None:
        with _bounded(setup["cpu_s"]):
            answer = _render(template, chat)
        _write(answer)


def _render(template: ChatTemplate, chat: dict[str, Any]) -> dict[str, str]:
    try:
        text = template.render(chat["messages"])
    except JetwayError as error:
        return {"refused": error.message}
    if len(text) > chat["max_chars"]:
        return {"refused": f"characters of a prompt may be at most {chat['max_chars']} here, not {len(text)}"}
    return {"text": text}


@contextmanager
def _bounded(cpu_s: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)  # SIGPROF, which ends a process that has no handler
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _read() -> Any:
    head = sys.stdin.buffer.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return json.loads(sys.stdin.buffer.read(*LENGTH.unpack(head)))


def _write(answer: dict[str, str]) -> None:
    payload = json.dumps(answer).encode()
    sys.stdout.buffer.write(LENGTH.pack(len(payload)) + payload)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
