"""Figures of the scheduler: what only grows, and how things stand."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from .events import FinishReason
from .plan import StepResult
from .sequence import Sequence
from .state import State

MAX_TENANTS = 1024  # counted by name; beyond that the least served are added up
OTHERS = "(others)"


class PreemptionReason(StrEnum):
    PRIORITY = "priority"  # a better level took its slot or its blocks
    KV_FULL = "kv_full"  # a better rank, or it itself, needed a block


class Rejection(StrEnum):
    """Why a request was refused, or given up before it started: the limit that it met."""

    INVALID = "invalid"  # it could never run
    QUEUED_REQUESTS = "max_queued_requests"
    QUEUED_TOKENS = "max_queued_tokens"
    QUEUE_TIMEOUT = "queue_timeout_s"


class Blocked(StrEnum):
    """Why what waits does not start in this step."""

    RESULT = "its last result is in flight"  # a start carries every known token
    BUDGET = "the token budget is spent"
    HELD = "it is held for company"
    CLASS = "its class runs as many as it may"
    SLOTS = "every slot is taken by an equal or better level"
    BLOCKS = "the KV blocks are held by equal or better levels"
    PREFIX = "another sequence is computing its prefix"
    LANE = "the aged lane is full"
    BETTER = "a better level has first claim on what becomes free"
    UNPLANNED = "the next plan decides"  # it came after the last one


class Histogram:
    """How many values were at most each bound, and above the last; O(log n) to observe."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # of each bucket by itself
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


TIME_BOUNDS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


def _times_by_class() -> defaultdict[str, Histogram]:
    return defaultdict(lambda: Histogram(TIME_BOUNDS_S))


@dataclass(slots=True, kw_only=True)
class Counters:
    """What only grows. Owned by the scheduler; survives its executors."""

    num_started: int = 0  # sequences that started for the first time
    num_losses: int = 0  # of executors
    num_steps: int = 0  # committed
    num_computed_tokens: int = 0
    num_sampled_tokens: int = 0
    num_recomputed_tokens: int = 0  # computed again after a preemption or a loss
    num_prompt_tokens: int = 0  # of first starts
    num_cached_tokens: int = 0  # of those, found in the prefix cache; restarts do not count again
    num_copied_out_blocks: int = 0
    num_copied_in_blocks: int = 0
    copied_out_s: float = 0.0  # seconds that copies took
    copied_in_s: float = 0.0
    preemptions: Counter[tuple[PreemptionReason, str]] = field(default_factory=Counter)  # by reason and mode
    served_tokens: Counter[str] = field(default_factory=Counter)  # sampled, by tenant
    wait_error_s: float = 0.0  # sum of |estimated - real| waits for the first start
    num_waits_estimated: int = 0
    rejections: Counter[Rejection] = field(default_factory=Counter)  # requests
    # Seconds, by class: from a sequence's arrival to its first start; once it ends, on to its first token, and to its last.
    queue_times: defaultdict[str, Histogram] = field(default_factory=_times_by_class)
    prefill_times: defaultdict[str, Histogram] = field(default_factory=_times_by_class)
    decode_times: defaultdict[str, Histogram] = field(default_factory=_times_by_class)

    @property
    def num_preemptions(self) -> int:
        return self.preemptions.total()

    def count_plan(self, num_tokens: int, *, num_copied_out: int, num_copied_in: int) -> None:
        self.num_computed_tokens += num_tokens
        self.num_copied_out_blocks += num_copied_out
        self.num_copied_in_blocks += num_copied_in

    def count_step(self, result: StepResult) -> None:
        self.num_steps += 1
        self.copied_out_s += result.copied_out_s
        self.copied_in_s += result.copied_in_s

    def count_start(self, sequence: Sequence) -> None:
        """A first start; how long it queued and what it found cached are known."""
        assert sequence.queued_s is not None
        self.num_started += 1
        self.num_prompt_tokens += sequence.prompt_len
        self.num_cached_tokens += sequence.num_cached_tokens
        self.queue_times[sequence.request.service_class].observe(sequence.queued_s)
        if sequence.expected_wait_s is not None:
            self.wait_error_s += abs(sequence.queued_s - sequence.expected_wait_s)
            self.num_waits_estimated += 1

    def count_end(self, sequence: Sequence, reason: FinishReason) -> None:
        """One that was cut short says nothing of how long decoding takes."""
        if sequence.first_token_at is None:
            return
        assert sequence.started_at is not None and sequence.last_token_at is not None
        name = sequence.request.service_class
        self.prefill_times[name].observe(sequence.first_token_at - sequence.started_at)
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            self.decode_times[name].observe(sequence.last_token_at - sequence.first_token_at)

    def count_sampled(self, sequences: Items[Sequence]) -> None:
        """One token each."""
        self.num_sampled_tokens += len(sequences)
        self.served_tokens.update(sequence.request.tenant for sequence in sequences)
        if len(self.served_tokens) > MAX_TENANTS:
            kept = Counter(dict(self.served_tokens.most_common(MAX_TENANTS // 2)))
            kept[OTHERS] += self.served_tokens.total() - kept.total()
            self.served_tokens = kept

    def count_preemption(self, reason: PreemptionReason, *, swap: bool) -> None:
        self.preemptions[reason, "swap" if swap else "recompute"] += 1


class Waits:
    """How long what waits has waited, and why, by class: for its first start, or to go on since it was displaced."""

    def __init__(self, waiting: Iterable[Sequence], why: Callable[[Sequence], Blocked], now: float) -> None:
        self.oldest_s: dict[str, float] = {}
        self.num_displaced: Counter[str] = Counter()
        self.reasons: defaultdict[str, Counter[Blocked]] = defaultdict(Counter)
        for sequence in waiting:
            name = sequence.request.service_class
            self.oldest_s[name] = max(self.oldest_s.get(name, 0.0), now - sequence.waits_since)
            self.num_displaced[name] += sequence.state is State.PREEMPTED
            self.reasons[name][why(sequence)] += 1


class LastStep(NamedTuple):
    """The step that was committed last."""

    committed_at: float
    elapsed_s: float  # by the executor's clock


class Progress(NamedTuple):
    """How far the scheduler has come; what counts only grows, over all executors."""

    is_attached: bool  # an executor is there to plan for
    has_work: bool  # something is resident or waits
    num_steps: int  # committed
    num_sampled_tokens: int
    last_step: LastStep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStats:
    name: str
    level: int
    num_running: int
    num_queued: int  # for the first start
    num_queued_tokens: int  # of their prompts
    num_queued_requests: int  # what max_queued_requests bounds
    num_displaced: int  # started once, waiting to go on
    waiting: dict[Blocked, int]  # queued and displaced, by why they do not run
    oldest_wait_s: float  # of what is queued or displaced
    expected_wait_s: float | None  # of a newcomer
    weight: float
    max_running: int | None
    max_queued_requests: int
    default_deadline_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How things stand. `blocked` says why the next of each level does not run, for levels where something waits."""

    num_running: int
    max_num_seqs: int
    num_waiting: int
    num_free_device_blocks: int
    num_free_host_blocks: int
    classes: tuple[ClassStats, ...]
    blocked: dict[int, Blocked]
    counters: Counters
