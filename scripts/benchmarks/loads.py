"""Two clients on one engine: a batch client that keeps it full, and an interactive one that comes now and then."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import Event, RequestFinished, TokenSampled
from jetway.scheduler.request import Request, SamplingParams
from jetway.scheduler.scheduler import Scheduler

NUM_OUTSTANDING, NUM_BATCH = 16, 32
ARRIVALS_PER_S, FIRST_ARRIVAL_S, LAST_ARRIVAL_S = 1.0, 3.0, 21.0  # while batch requests wait for slots
SAMPLING = SamplingParams(temperature=0.0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    at_s: float  # of an interactive one
    prompt: list[int]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """The batch client's requests, of which so many are outstanding at any time, and the interactive ones by time."""

    num_outstanding: int
    batch: list[Job]
    interactive: list[Job]


@dataclass(frozen=True, slots=True)
class Rules:
    """Service classes, and which of them each client asks for."""

    classes: Sequence[ServiceClass]
    interactive: str
    batch: str


@dataclass(slots=True)
class Outcome:
    """Of one load under one policy."""

    elapsed_s: float = 0.0  # until the last token
    num_tokens: int = 0  # sampled
    first_tokens_s: list[float] = field(default_factory=list)  # of interactive requests, from arrival

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.elapsed_s


def make_load(seed: int) -> Load:
    rng = random.Random(seed)

    def job(id: str, at_s: float, prompt_tokens: int, max_tokens: int) -> Job:
        return Job(id, at_s, [rng.randrange(300, 49_000) for _ in range(prompt_tokens)], max_tokens)

    batch = [job(f"batch{i}", 0.0, rng.randint(64, 256), rng.randint(100, 300)) for i in range(NUM_BATCH)]
    interactive: list[Job] = []
    at_s = FIRST_ARRIVAL_S
    while (at_s := at_s + rng.expovariate(ARRIVALS_PER_S)) < LAST_ARRIVAL_S:
        interactive.append(job(f"interactive{len(interactive)}", at_s, rng.randint(32, 96), 8))
    return Load(NUM_OUTSTANDING, batch, interactive)


class Clients:
    """Both clients of one run, as they add requests and see events."""

    def __init__(self, load: Load, scheduler: Scheduler, rules: Rules) -> None:
        self._load = load
        self._scheduler = scheduler
        self._rules = rules
        self._batch = list(reversed(load.batch))
        self._at_s = {job.id: job.at_s for job in load.interactive}
        self._unfinished = len(load.batch) + len(load.interactive)
        self._waits_for_first = set(self._at_s)
        self._begin = time.perf_counter()
        self.work = asyncio.Event()
        self.done = asyncio.Event()
        self.outcome = Outcome()
        for _ in range(load.num_outstanding):
            self._add(self._batch.pop(), self._rules.batch)

    @property
    def _now_s(self) -> float:
        return time.perf_counter() - self._begin

    async def arrive(self) -> None:
        """Add the interactive requests, each at its time."""
        for job in self._load.interactive:
            await asyncio.sleep(job.at_s - self._now_s)
            self._add(job, self._rules.interactive)

    def publish(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case TokenSampled():
                    self.outcome.num_tokens += 1
                    id = event.sequence_id.request_id
                    if id in self._waits_for_first:
                        self._waits_for_first.remove(id)
                        self.outcome.first_tokens_s.append(self._now_s - self._at_s[id])
                case RequestFinished():
                    self._finish(event.request_id)

    def _finish(self, request_id: str) -> None:
        self._unfinished -= 1
        if request_id not in self._at_s and self._batch:
            self._add(self._batch.pop(), self._rules.batch)
        if not self._unfinished:
            self.outcome.elapsed_s = self._now_s
            self.done.set()

    def _add(self, job: Job, service_class: str) -> None:
        request = Request(
            id=job.id, prompt=job.prompt, sampling=SAMPLING, max_tokens=job.max_tokens, service_class=service_class
        )
        self._scheduler.add(request, time.monotonic())
        self.work.set()
