"""Ctrl-C around C++ that calls back into Python."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Let the block end before Ctrl-C takes effect. For the main thread.

    A KeyboardInterrupt that passes through OpenVINO comes out as RuntimeError, or is lost, or ends the process before
    anything is cleaned up.
    """
    received = False

    def hold(*_: object) -> None:
        nonlocal received
        received = True

    previous = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received:
            raise KeyboardInterrupt
