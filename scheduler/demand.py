"""What is asked and what is served: how long a newcomer will wait, and when a refused one should come back.

The estimate is QLM's (SoCC '24): expected tokens queued ahead over the token rate measured.
"""

import math
from collections.abc import Iterable
from hashlib import blake2b

from .class_queue import ClassQueue
from .draft import Row
from .queues import Queues
from .sequence import Sequence

HALF_LIFE_S = 10.0  # of the measured rates, in busy seconds
MIN_RETRY_S, MAX_RETRY_S = 1, 60
JITTER = 0.1  # spreads equal answers, by key, so that the refused do not come back at once


class Demand:
    """Rates by level and average outputs by class, as they are measured."""

    def __init__(self) -> None:
        self._busy_s = 0.0
        self._served: dict[int, float] = {}  # tokens by level, decayed as the seconds are
        self._average_output: dict[str, float] = {}

    def serve(self, rows: Iterable[Row], elapsed_s: float) -> None:
        """A step took so long for these rows; prompt and output tokens count alike."""
        keep = 0.5 ** (elapsed_s / HALF_LIFE_S)
        self._busy_s = self._busy_s * keep + elapsed_s
        served = {level: tokens * keep for level, tokens in self._served.items()}
        for row in rows:
            level = row.sequence.level
            served[level] = served.get(level, 0.0) + row.num_tokens
        self._served = served

    def finish(self, sequence: Sequence) -> None:
        """The sequence has ended by itself, with all of its output."""
        name = sequence.request.service_class
        average = self._average_output.get(name, float(sequence.num_output))
        self._average_output[name] = average + 0.05 * (sequence.num_output - average)

    def wait_s(self, queues: Queues, level: int) -> float | None:
        """Seconds until what this level and better have queued is served; None while no rate is known."""
        served = sum(tokens for number, tokens in self._served.items() if number <= level)
        if not served or not self._busy_s:
            return None
        ahead = sum(self._queued_tokens(each) for number, each in queues.class_queues() if number <= level)
        return ahead * self._busy_s / served

    def retry_after_s(self, queues: Queues, level: int, key: str) -> int:
        """Whole seconds in 1..60 after which a refused request may find room."""
        wait_s = self.wait_s(queues, level)
        if wait_s is None:
            return MIN_RETRY_S
        draw = int.from_bytes(blake2b(key.encode(), digest_size=4).digest()) / 2**32
        jittered = wait_s * (1 + JITTER * (2 * draw - 1))
        return max(MIN_RETRY_S, min(MAX_RETRY_S, math.ceil(jittered)))

    def _queued_tokens(self, queue: ClassQueue) -> float:
        """Prompts and expected outputs that wait for their first start."""
        average = self._average_output.get(queue.service_class.name)
        most = float(queue.num_queued_output_tokens)
        expected = most if average is None else min(most, average * queue.num_queued)
        return queue.num_queued_tokens + expected
