"""What is asked and what is served: how long a newcomer will wait, and when a refused one should come back.

The estimate is QLM's (SoCC '24): the work ahead over the token rate measured. Ahead is what this level and better have
queued, running and displaced. The rate is what all levels together are served while the executor works, less what better
levels take, idle times included: they go on arriving while the newcomer waits.
"""

import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from .draft import Row
from .queues import Queues
from .stats import Blocked

HALF_LIFE_S = 10.0  # of the measured rates
LEAST_SHARE = 0.05  # of the rate that a level is thought to have, whatever better levels take
MIN_RETRY_S, MAX_RETRY_S = 1, 60
JITTER = 0.1  # spreads equal answers, by key, so that the refused do not come back at once


class Demand:
    """Rates by level, and how many sequences run at once, as they are measured."""

    def __init__(self, max_num_seqs: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._num_fitting = max_num_seqs  # sequences that run at once: fewer than slots where blocks are short
        self._busy = _Rate()  # of all levels, over the seconds in which the executor works
        self._taken: dict[int, _Rate] = {}  # by each level, over all seconds
        self._served_at: float | None = None

    def planned(self, blocked: Mapping[int, Blocked], *, num_running: int, num_waiting: int) -> None:
        """Learn from a plan how much room there is. A plan that left the next of every level unexamined tells nothing."""
        if Blocked.BLOCKS in blocked.values():
            self._num_fitting = max(1, num_running)
        elif blocked or not num_waiting:
            self._num_fitting = self._max_num_seqs

    def serve(self, rows: Iterable[Row], elapsed_s: float, now: float) -> None:
        """A step took so long for these rows, until `now`; prompt and output tokens count alike."""
        tokens: dict[int, int] = {}
        for row in rows:
            level = row.sequence.level
            tokens[level] = tokens.get(level, 0) + row.num_tokens
        self._busy.observe(sum(tokens.values()), elapsed_s)
        passed_s = elapsed_s if self._served_at is None else now - self._served_at
        self._served_at = now
        for level in {*self._taken, *tokens}:
            self._taken.setdefault(level, _Rate()).observe(tokens.get(level, 0), passed_s)

    def wait_s(self, queues: Queues, level: int) -> float | None:
        """Seconds until a newcomer of this level can start; None while no rate is known. O(classes)."""
        rate = self._rate(level)
        if rate is None:
            return None
        ahead = [queue.backlog for number, queue in queues.class_queues() if number <= level]
        num_sequences = sum(each.num_sequences for each in ahead)
        if num_sequences < self._num_fitting:
            return 0.0
        mean_output = sum(each.expected_output for each in ahead) / num_sequences
        still_running = (self._num_fitting - 1) * mean_output / 2  # beside the newcomer, when it starts
        return max(0.0, sum(each.expected_tokens for each in ahead) - still_running) / rate

    def retry_after_s(self, queues: Queues, level: int, key: str) -> int:
        """Whole seconds in 1..60 after which a refused request may find room; 1 while no rate is known."""
        wait_s = self.wait_s(queues, level) or 0.0
        draw = int.from_bytes(blake2b(key.encode(), digest_size=4).digest()) / 2**32
        jittered = wait_s * (1 + JITTER * (2 * draw - 1))
        return math.ceil(max(MIN_RETRY_S, min(MAX_RETRY_S, jittered)))

    def _rate(self, level: int) -> float | None:
        """Tokens a second that this level can be served."""
        if (total := self._busy.per_s) is None:
            return None
        better = sum(rate.per_s or 0.0 for number, rate in self._taken.items() if number < level)
        return max(total - better, LEAST_SHARE * total)


class _Rate:
    """Tokens a second, of late."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, num_tokens: int, elapsed_s: float) -> None:
        keep = 0.5 ** (elapsed_s / HALF_LIFE_S)
        self._tokens = self._tokens * keep + num_tokens
        self._seconds = self._seconds * keep + elapsed_s

    @property
    def per_s(self) -> float | None:
        """None: nothing is known."""
        return self._tokens / self._seconds if self._tokens and self._seconds else None
