"""Sequences to arrays: applies each StepPlan, as if serial, to the resident sequences and to an engine."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jetway.scheduler.plan import Slot, StepPlan, StepResult, TokenLogprobs

from .base import Engine, Int32Array, Int64Array, Launch, Sampled, SamplingState, StepBatch
from .batch import Decodes, Rows, pack, unpack_tables
from .counts import PlanError, SlotCounts, blocks_of
from .leader import Followers, NoFollowers
from .starts import sampling_state


@dataclass(slots=True)
class Step:
    """A plan that has begun: what its rows compute, as of the plans before it, whose tokens may still be unknown."""

    plan: StepPlan
    rows: Rows
    batch: StepBatch
    decodes: Decodes
    skipped: list[Slot]  # rows of sequences that have ended
    num_ended: int  # sequences that had ended when it was last looked at


@dataclass(frozen=True, slots=True)
class Launched:
    """A step that the engine has; it has nothing of one without rows."""

    step: Step
    launch: Launch | None
    began: float  # perf_counter()
    copied_out_s: float
    copied_in_s: float


class Slots:
    """The sequences resident in an engine, by slot; a session's state.

    A plan begins while those before it may still compute: counts and block tables advance then, token values and ends
    when it is collected, as in the scheduler. Each of begin, launch and collect comes in the order of the plans, from one
    thread; collect's may be another than begin's, and launch may come from either. Counts and tables are arrays over all
    slots, so that a batch is built without a loop over tokens.
    """

    def __init__(self, engine: Engine, followers: Followers | None = None) -> None:
        self._engine = engine
        self._followers = followers or NoFollowers()
        self._description = engine.describe()
        num_slots, block_size = self._description.max_num_seqs, self._description.block_size
        self._counts = SlotCounts.none_resident(num_slots)
        self._tables = np.zeros((num_slots, blocks_of(self._description.max_seq_len, block_size)), np.int32)
        self._states: dict[int, SamplingState] = {}
        self._step = 0
        self._num_ended = 0
        self._num_out = 0  # steps launched and not yet collected
        self._books = threading.Lock()  # guards all of the above against the other thread
        self._collected_at = 0.0  # perf_counter(), of the step before; collect's own

    def __repr__(self) -> str:
        c = self._counts
        residents = (
            f"{slot}: {c.computed[slot]}/{c.known[slot]} in {self._tables[slot, : c.blocks[slot]].tolist()}"
            + (" ended" if c.ended[slot] else "")
            for slot in self._states
        )
        return f"<Slots after step {self._step} [{', '.join(residents)}]>"

    def run(self, plan: StepPlan) -> StepResult:
        """Do all of `plan`. Raises what that raises."""
        return self.collect(self.launch(self.begin(plan)))

    def begin(self, plan: StepPlan) -> Step:
        """Release, admit and advance. Raises PlanError for an illegal plan, which then changed nothing."""
        with self._books:
            if plan.step != self._step + 1:
                raise PlanError(f"step {plan.step} follows step {self._step}")
            self._counts = self._counts.after(plan, self._description)
            self._step = plan.step
            for slot in plan.releases:
                del self._states[slot]
            self._admit(plan)
            slots, num_tokens = np.asarray(plan.row_slots, np.int64), np.asarray(plan.row_tokens, np.int32)
            live = ~self._counts.ended[slots]
            rows = self._advance(slots[live], num_tokens[live])
            batch = pack(rows, self._tables[rows.slots], self._description.block_size)
            return Step(plan, rows, batch, Decodes.of(rows, batch), slots[~live].tolist(), self._num_ended)

    def launch(self, step: Step) -> Launched:
        """Copy, and give the engine its batch; so do the followers. Raises EngineFailed: the session is then over."""
        began = time.perf_counter()
        with self._books:
            self._catch_up(step)
            self._followers.launch(step.plan)
            self._num_out += 1
        copied_out_s = _copy(self._engine.copy_out, step.plan.copies_out)
        copied_in_s = _copy(self._engine.copy_in, step.plan.copies_in)
        launch = self._engine.launch(step.batch) if len(step.rows.slots) else None
        return Launched(step, launch, began, copied_out_s, copied_in_s)

    def collect(self, launched: Launched) -> StepResult:
        """Append what was sampled, once it is known. Raises EngineFailed: the session is then over."""
        step = launched.step
        sampled = launched.launch.wait() if launched.launch else None
        with self._books:
            self._num_out -= 1
            result = self._append(step, sampled) if sampled else StepResult(step=step.plan.step, skipped=step.skipped)
            self._followers.collected(result)
        began = max(launched.began, self._collected_at)  # the engine was at the step before until then
        self._collected_at = time.perf_counter()
        return replace(
            result,
            elapsed_s=self._collected_at - began,
            copied_out_s=launched.copied_out_s,
            copied_in_s=launched.copied_in_s + (sampled.copy_wait_s if sampled else 0.0),
        )

    def _admit(self, plan: StepPlan) -> None:
        """Start sequences and grow block tables."""
        for start in plan.starts:
            self._tables[start.slot, : len(start.blocks)] = start.blocks
            self._states[start.slot] = sampling_state(start, self._engine.eos_token_ids, self._description.vocab_size)
        ends = self._counts.blocks.copy()  # as after growth, so the blocks find their places from the last back
        for slot, block in zip(reversed(plan.grow_slots), reversed(plan.grow_blocks), strict=True):
            ends[slot] -= 1
            self._tables[slot, ends[slot]] = block

    def _advance(self, slots: Int64Array, num_tokens: Int32Array) -> Rows:
        """The next `num_tokens` known tokens of each slot count as computed, and what they sample as known."""
        counts = self._counts
        past = counts.computed[slots]
        sampling = past + num_tokens == counts.known[slots]
        counts.computed[slots] += num_tokens
        counts.known[slots] += sampling
        return Rows(
            slots=slots,
            states=[self._states[slot] for slot in slots.tolist()],
            past=past,
            num_tokens=num_tokens,
            sampling=sampling,
            start_lens=counts.started[slots],
        )

    def _catch_up(self, step: Step) -> None:
        """Leave out what collected steps have ended, and fill in what they sampled; what others will is pending."""
        if step.num_ended != self._num_ended:
            live = np.array([not state.ended for state in step.rows.states], bool)
            step.skipped += step.rows.slots[~live].tolist()
            tables = unpack_tables(step.batch)[live]
            step.rows = step.rows.keep(live)
            step.batch = pack(step.rows, tables, self._description.block_size)
            step.decodes = Decodes.of(step.rows, step.batch)
            step.num_ended = self._num_ended
        decodes = step.decodes
        if self._num_out:
            decodes, pending = decodes.split()
            step.batch = replace(step.batch, pending_rows=pending.rows)
        decodes.fill(step.batch)

    def _append(self, step: Step, sampled: Sampled) -> StepResult:
        """Add to each sequence the token sampled for it, and note where that ends it."""
        wanted: list[Slot] = step.rows.slots[step.rows.sampling].tolist()
        slots, states, tokens, failures = wanted, step.batch.sample_states, sampled.tokens, sampled.failures
        over: list[int] = []
        if step.num_ended != self._num_ended:  # by steps that were not collected when it was launched
            over = [row for row, state in enumerate(states) if state.ended]
            failures = {row: message for row, message in failures.items() if row not in over}
        for row in failures:
            self._end(slots[row], states[row])
        if void := {*over, *failures}:
            good = [row for row in range(len(wanted)) if row not in void]
            slots, states, tokens = (
                [slots[row] for row in good],
                [states[row] for row in good],
                [tokens[row] for row in good],
            )
        for state, token in zip(states, tokens, strict=True):
            state.tokens.append(token)
        stopped = [token in state.stop_ids for state, token in zip(states, tokens, strict=True)]
        for row in (row for row, stops in enumerate(stopped) if stops):
            self._end(slots[row], states[row])
        return StepResult(
            step=step.plan.step,
            slots=slots,
            tokens=tokens,
            stopped=stopped,
            skipped=[*step.skipped, *(wanted[row] for row in over)],
            failures=[(wanted[row], message) for row, message in failures.items()],
            logprobs=_of_the_good(sampled.logprobs, void),
        )

    def _end(self, slot: Slot, state: SamplingState) -> None:
        """Nothing more of the sequence is computed. A later plan may have given its slot to another already."""
        state.ended = True
        self._num_ended += 1
        if self._states.get(slot) is state:
            self._counts.ended[slot] = True


def _of_the_good(logprobs: Mapping[int, TokenLogprobs], void: set[int]) -> dict[int, TokenLogprobs]:
    """By place among the rows that are not void."""
    good = ((row, scores) for row, scores in logprobs.items() if row not in void)
    return {row - sum(other < row for other in void): scores for row, scores in good}


def _copy(copy: Callable[[Int32Array, Int32Array], None], blocks: Sequence[tuple[int, int]]) -> float:
    """Move blocks from one pool to the other; the seconds it took."""
    if not blocks:
        return 0.0
    began = time.perf_counter()
    copy(*np.array(blocks, np.int32).T)
    return time.perf_counter() - began
