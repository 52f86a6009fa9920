"""Random schedules over one engine: the real scheduler with little room, requests that come, displace, share and go."""

import random
from collections.abc import Callable, Sequence

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.events import Event, FinishReason, SequenceFinished, TokenSampled
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.request import SamplingParams
from jetway.scheduler.stats import Counters
from tests.runtime.executor.driving import Job
from tests.runtime.executor.scheduled import Driver, Room, mixes
from tests.support.trt_references import Reference

STEPS_A_SESSION = 100
LOGPROB_TOLERANCE = 1e-3  # f32 moves them by 1e-5
SAMPLING = SamplingParams(temperature=0.0, logprobs=0)


class RandomMix:
    """Runs sessions on `engine`, one after the other, and compares each token with its reference as it is sampled."""

    def __init__(
        self,
        engine: Engine,
        references: Sequence[Reference],
        seed: int,
        logprob_tolerance: float = LOGPROB_TOLERANCE,
        new_slots: Callable[[], Slots] | None = None,
    ) -> None:
        """`new_slots` are a session's, unless nothing but `engine` takes part."""
        self._engine = engine
        self._new_slots = new_slots or (lambda: Slots(engine))
        self._description = engine.describe()
        self._logprob_tolerance = logprob_tolerance
        self._references = references
        self._rng = random.Random(seed)
        self._expected: dict[str, Reference] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self.num_steps = 0
        self.num_mixed_steps = 0
        self.counters: list[Counters] = []  # of each session

    def run(self, num_steps: int) -> None:
        """Raises AssertionError at the first token that is not the reference's, or not as probable."""
        while self.num_steps < num_steps:
            self._run_session(min(STEPS_A_SESSION, num_steps - self.num_steps))

    def _run_session(self, num_steps: int) -> None:
        driver = Driver(self._engine, self._draw_room(), self._new_slots())
        self._expected.clear()
        self._seen.clear()
        for _ in range(num_steps):
            self._disturb(driver)
            if driver.step():
                for event in driver.new_events:
                    self._compare(event)
        driver.leave()
        self.num_steps += len(driver.plans)
        self.num_mixed_steps += sum(map(mixes, driver.plans))
        self.counters.append(driver.counters)

    def _draw_room(self) -> Room:
        rng = self._rng
        most, max_num_seqs = self._description, rng.randint(2, 8)
        lengths = [len(each.prompt) + len(each.tokens) for each in self._references]
        longest = -(-max(lengths) // most.block_size)  # in blocks
        mode = rng.choice([PreemptionMode.SWAP, PreemptionMode.SWAP, PreemptionMode.RECOMPUTE])
        return Room(
            num_device_blocks=rng.randint(longest, 5 * longest // 2),
            num_host_blocks=min(rng.choice([longest // 2, 2 * longest, 4 * longest]), most.num_host_blocks)
            if mode is PreemptionMode.SWAP
            else 0,
            max_num_seqs=max_num_seqs,
            budget=rng.randint(max_num_seqs + most.block_size, min(16 * most.block_size, most.max_num_batched_tokens)),
            mode=mode,
            write_through=rng.random() < 0.3,
            depth=(depth := rng.choice([0, most.num_stages])),
            num_micro_batches=min(most.num_stages, 1 + depth),
        )

    def _disturb(self, driver: Driver) -> None:
        """Now and then a request arrives, or one is aborted."""
        rng = self._rng
        if rng.random() < 0.35:
            reference = rng.choice(self._references)
            id = str(len(self._expected))
            self._expected[id] = reference
            job = self._draw_job(reference)
            service_class = rng.choice(["high", "low", "low"])
            driver.add(id, job, service_class, n=rng.choice([1, 1, 1, 2]), tenant=rng.choice("ab"))
        if self._expected and rng.random() < 0.02:
            driver.abort(rng.choice(list(self._expected)))

    def _draw_job(self, reference: Reference) -> Job:
        """Of so many tokens: that is asked for, or the last is a stop token, and barred until then."""
        num_tokens = self._rng.randint(1, len(reference.tokens))
        *others, stop = reference.tokens[:num_tokens]
        if self._rng.random() < 0.5 or stop in others:
            return Job(reference.prompt, num_tokens, SAMPLING)
        # Without log-probabilities: what is barred changes the others'.
        sampling = SamplingParams(temperature=0.0, stop_token_ids=(stop,), min_tokens=len(others))
        return Job(reference.prompt, len(reference.tokens), sampling)

    def _compare(self, event: Event) -> None:
        assert not (isinstance(event, SequenceFinished) and event.reason is FinishReason.FAILED), event
        if not isinstance(event, TokenSampled):
            return
        id, index = event.sequence_id.request_id, event.sequence_id.index
        place = self._seen.get((id, index), 0)
        self._seen[id, index] = place + 1
        reference, logprobs = self._expected[id], event.logprobs
        assert event.token == reference.tokens[place], f"token {place} of {event.sequence_id}"
        if logprobs is not None:
            assert abs(logprobs.logprob - reference.logprobs[place]) < self._logprob_tolerance, f"token {place} of {id}"
