"""Keeps Python's garbage collector out of the step: it runs while the executor computes, or while there is nothing to do.

Left to itself it runs inside `plan` or `commit`, wherever an allocation crosses its threshold, and a full collection
looks at every token of every queued request.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

YOUNG, ALL = 1, 2  # the oldest generation that a collection looks at

PAUSES_PER_YOUNG = 64
PAUSES_PER_ALL = 4096  # a multiple; cycles of long requests are few and can wait


@contextmanager
def kept_out_of_steps() -> Iterator[None]:
    """Inside, nothing is collected unless `Garbage` says so; what exists at the start is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Garbage:
    """Collects now and then in the pauses of a loop. `collect` takes the oldest generation to look at."""

    def __init__(self, collect: Callable[[int], object] = gc.collect) -> None:
        self._collect = collect
        self._num_pauses = 0

    def pause(self) -> None:
        """Nothing waits for us now."""
        self._num_pauses += 1
        if self._num_pauses % PAUSES_PER_ALL == 0:
            self._collect(ALL)
        elif self._num_pauses % PAUSES_PER_YOUNG == 0:
            self._collect(YOUNG)
