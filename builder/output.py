"""Standard output of a command that may outlive whoever reads it."""

import os
import sys


def say(text: str) -> None:
    """What a build shows. It goes on without: its words are not what it is for."""
    try:
        print(text, end="", flush=True)
    except OSError:
        _silence()


def answer(text: str) -> int:
    """What a command is for; the exit status. A reader that has seen enough is none of our errors, a full disk is one."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _silence()
    except OSError as error:
        _silence()
        print(f"build-engine: standard output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _silence() -> None:
    """Let what is buffered go nowhere, or the interpreter would try again at its end."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_fd, sys.stdout.fileno())
    os.close(null_fd)
