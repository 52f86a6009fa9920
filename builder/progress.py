"""What a build shows while it runs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Progress:
    """One line a stage: its name at once, what it has done as it does it, its time at the end."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Frame one stage."""
        self._write(f"{name:<10}")
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self._write("failed\n")
            raise
        self._write(f"{time.monotonic() - start:.1f} s\n")

    def say(self, words: str) -> None:
        """Add to the line of the stage under way."""
        self._write(f"{words}, ")
