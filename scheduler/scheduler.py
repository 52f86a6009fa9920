"""The scheduler's public face: plan -> (the executor executes) -> commit."""

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Items
from itertools import count

from .admission import Admission
from .classes import ServiceClass
from .demand import Demand
from .draft import Row, StepDraft
from .estimate import Estimates
from .events import Event, FinishReason
from .ledger import Ledger
from .limits import LimitError, Limits, longest_sequence
from .overdue import Overdue
from .overview import Overview
from .plan import EngineDescription, Slot, StepPlan, StepResult
from .planner import Planner
from .prefill import PrefillControl
from .queues import Queues
from .request import Request, SequenceId
from .residency import Residency
from .sequence import Sequence
from .state import Move, State
from .stats import Counters, LastStep, Progress, Stats
from .suspects import Suspects
from .timers import Timers


class Scheduler:
    """Decides each step; planner.py says how. Not thread-safe; every call returns at once.

    `limits` bound a step, `classes` the queues, `engine` is what the executor serves; `tenant_weights` are 1 unless
    given. `add`, `abort`, `finish`, `plan` and `commit` may be called in any order; `events` is the only outlet. Plans
    are committed in the order planned. Times are seconds on any one clock.
    """

    def __init__(
        self,
        limits: Limits,
        classes: Items[ServiceClass],
        engine: EngineDescription,
        *,
        tenant_weights: Mapping[str, float] | None = None,
    ) -> None:
        limits.check_engine(engine)
        self._limits = limits
        self._queues = Queues(classes, tenant_weights or {}, num_aged_slots=limits.num_aged_slots)
        self._timers = Timers()
        self._ledger = Ledger()
        self._counters = Counters()
        self._last_step: LastStep | None = None
        self._starts = count()
        self._estimates = Estimates()
        self._demand = Demand(limits.max_num_seqs)
        self._suspects = Suspects()
        self._admission = Admission(self._queues, self._ledger, self._timers, self._demand, self._counters)
        self._overdue = Overdue(self._timers, self._queues, self._ledger, self._admission, self._counters, self._end)
        self._overview = Overview(self._queues, self._ledger, self._demand, self._counters)
        self._attach(engine)

    def _attach(self, engine: EngineDescription) -> None:
        """Begin an executor session: nothing is resident there, and every block is free."""
        self._engine = engine
        self._residency = Residency(self._limits, engine, self._queues, self._counters, self._starts)
        self._prefill = PrefillControl(self._limits, self._queues, self._estimates, engine.block_size)
        self._planner = Planner(self._limits, self._queues, self._residency, self._prefill, self._estimates)
        self._in_flight: deque[StepDraft] = deque()  # plans without a result yet
        self._next_step = 1
        self._committed_at = 0.0
        self._attached = True

    # Requests come and go.

    def add(self, request: Request, arrival: float, generated: Mapping[int, Items[int]] | None = None) -> None:
        """Accept the request, or raise InvalidRequest (it could never run) or QueueFull (not now).

        `generated` is set for a request that a scheduler before this one had accepted and that was lost with it: what
        each sequence that still lives has generated. It goes on from there, whatever is queued.
        """
        self._admission.admit(request, self._engine, arrival, generated)

    def abort(self, request_id: str) -> None:
        """End what lives of the request as cancelled. A request that has ended is no error: the calls crossed."""
        for sequence in self._ledger.of_request(request_id):
            self._end(sequence, FinishReason.CANCELLED)

    def finish(self, sequence_id: SequenceId, kept_tokens: int) -> None:
        """End the sequence as stopped with the first `kept_tokens` of its output. One that has ended is no error."""
        if sequence := self._ledger.find(sequence_id):
            self._end(sequence, FinishReason.STOP, kept_tokens=kept_tokens)

    # Plan.

    def plan(self, now: float) -> StepPlan | None:
        """The next step's work, or None when there is nothing to do now. A plan may hold only releases."""
        self._overdue.ring(now)
        suspect = self._suspects.to_run_alone
        if not self._attached or (suspect and self._in_flight):
            return None
        draft = self._planner.draft(self._next_step, now, alone=suspect)
        residents, cache = self._residency.residents, self._residency.cache
        self._demand.planned(self._planner.blocked, num_running=len(residents), num_waiting=self._queues.num_waiting)
        if not draft.rows and not residents.has_releases:
            return None
        copies = cache.take_copies()
        plan = draft.finish(residents.take_releases(), copies)
        self._counters.count_plan(draft.work.num_tokens, num_copied_out=len(copies.out), num_copied_in=len(copies.into))
        self._in_flight.append(draft)
        self._next_step += 1
        return plan

    # Commit.

    def commit(self, result: StepResult, now: float) -> None:
        """Take one plan's result: tokens get their values, sequences end. Results come in the order of the plans."""
        draft = self._in_flight.popleft()
        rows = draft.rows
        assert draft.step == result.step, f"result of step {result.step} while step {draft.step} is due"
        if rows:
            self._estimates.observe(draft.work, elapsed_s=result.elapsed_s, copied_s=result.copied_s)
            self._demand.serve(rows.values(), now - max(draft.now, self._committed_at), now)
        self._committed_at = now
        self._last_step = LastStep(now, result.elapsed_s)
        num_answered = len(result.slots) + len(result.skipped) + len(result.failures)
        assert num_answered == draft.num_samples, f"step {draft.step}: a row has no answer"
        for slot, message in result.failures:  # first: what they computed must not be shared
            self._end(rows[slot].sequence, FinishReason.FAILED, message)
        self._suspects.clear(rows.values())
        self._residency.settle(rows.values())
        self._commit_tokens(rows, result, now)
        self._counters.count_step(result)

    def _commit_tokens(self, rows: dict[Slot, Row], result: StepResult, now: float) -> None:
        """A sequence that ended while this step was in flight drops its token."""
        served: list[Sequence] = []
        ended: list[tuple[Sequence, FinishReason]] = []
        sampled = zip(result.slots, result.tokens, result.stopped, strict=True)
        for position, (slot, token, stopped) in enumerate(sampled):
            sequence = rows[slot].sequence
            if sequence.state is State.FINISHED:
                continue
            sequence.tokens.append(token)
            served.append(sequence)
            if sequence.first_token_at is None:
                sequence.first_token_at = now
            sequence.last_token_at = now
            self._ledger.token(sequence, token, result.logprobs.get(position))
            if stopped:
                ended.append((sequence, FinishReason.STOP))
            elif len(sequence.tokens) == sequence.max_len:
                ended.append((sequence, FinishReason.LENGTH))
        self._queues.charge_sampled(served)
        self._counters.count_sampled(served)
        for sequence, reason in ended:
            self._end(sequence, reason)

    def _end(
        self, sequence: Sequence, reason: FinishReason, message: str = "", *, kept_tokens: int | None = None
    ) -> None:
        """The one way a sequence ends. Its blocks are free for the next plan, since plans act as if serial.

        What it generated beyond `kept_tokens` does not count.
        """
        if sequence.state is State.FINISHED:
            return
        self._queues.end(sequence, reason)
        self._counters.count_end(sequence, reason)
        if kept_tokens is not None:
            del sequence.tokens[sequence.prompt_len + kept_tokens :]
        if sequence.state is State.RUNNING:
            self._residency.vacate(sequence)
        else:
            self._residency.cache.forget(sequence)
        self._suspects.forget(sequence)
        sequence.move(Move.FINISH)
        self._timers.forget(sequence)
        self._ledger.close(sequence, reason, message)

    # The executor comes and goes.

    def executor_lost(self, now: float, *, num_sent: int | None = None) -> None:
        """Put every resident back into the queue, in its rank; nothing is planned until `executor_ready`.

        A sequence that has surely killed its executor fails; of the plans without a result only the first `num_sent`
        had reached it (None: all).
        """
        if self._attached:
            self._counters.num_losses += 1
        culprit = self._suspects.accuse(list(self._in_flight)[:num_sent])
        for sequence in list(self._residency.residents):
            self._residency.requeue(sequence, now)
        for sequence in self._ledger:
            sequence.forget_executor()
            if sequence.state is State.PREEMPTED:
                self._queues.owe(sequence)
        self._attach(self._engine)
        self._attached = False
        if culprit:
            self._end(culprit, FinishReason.FAILED, "the executor was lost each time it computed this sequence")

    def executor_ready(self, engine: EngineDescription, now: float) -> None:
        """Plan for a new executor. Raises LimitError when it cannot do what the limits allow, or serves another engine.

        A live sequence that the new pool could never hold fails by name.
        """
        self._limits.check_engine(engine)
        if engine.engine_id != self._engine.engine_id:
            raise LimitError(f"the new executor serves engine {engine.engine_id}, not {self._engine.engine_id}")
        self._attach(engine)
        longest = longest_sequence(engine)
        for sequence in list(self._ledger):
            if (length := sequence.max_len) > longest:
                message = f"the new executor holds sequences of {longest} tokens, this one may need {length}"
                self._end(sequence, FinishReason.FAILED, message)

    # What can be seen.

    @property
    def engine(self) -> EngineDescription:
        """What the executor serves, or the last one served."""
        return self._engine

    def events(self) -> list[Event]:
        """What happened since the last call, in order. Drain it after every call."""
        return self._ledger.take_events()

    def wake_at(self) -> float | None:
        """When `plan` may find work without any other call; None: never."""
        due = [when for when in (self._timers.next_due(), self._prefill.hold_until) if when is not None]
        return min(due, default=None)

    def progress(self) -> Progress:
        """How far it has come. O(1): for whoever looks often."""
        return Progress(
            is_attached=self._attached,
            has_work=bool(len(self._residency.residents) or self._queues.num_waiting),
            num_steps=self._counters.num_steps,
            num_sampled_tokens=self._counters.num_sampled_tokens,
            last_step=self._last_step,
        )

    def stats(self, now: float) -> Stats:
        """How things stand. O(n) in what waits: for people and scrapers, not for the step."""
        return self._overview.stats(self._residency, self._planner, now)

    def check(self) -> None:
        """Raise AssertionError unless every count agrees with the live sequences. For idle times and tests."""
        self._overview.check(self._residency)
