"""Sequences to arrays: applies each StepPlan, as if serial, to the resident sequences and to an engine."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from jetway.scheduler.plan import Slot, Start, StepPlan, StepResult, TokenLogprobs
from jetway.scheduler.request import SamplingParams

from .base import Engine, Int32Array, Int64Array, Sampled, SamplingState, StepBatch
from .batch import Decodes, Rows, pack, unpack_tables
from .counts import PlanError, SlotCounts, blocks_of


@dataclass(slots=True)
class Step:
    """A plan that has begun: what its rows compute, as of the plans before it, whose tokens may still be unknown."""

    plan: StepPlan
    rows: Rows
    batch: StepBatch
    decodes: Decodes
    skipped: list[Slot]  # rows of sequences that have ended
    num_ended: int  # sequences that had ended when it began


class Slots:
    """The sequences resident in an engine, by slot; a session's state.

    A plan begins while the one before it may still compute: counts and block tables advance then, token values and ends
    when it completes, as in the scheduler. Begins and completes each come in the order of the plans, from a thread
    each. Counts and tables are arrays over all slots, so that a batch is built without a loop over tokens.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._description = engine.describe()
        num_slots, block_size = self._description.max_num_seqs, self._description.block_size
        self._counts = SlotCounts.none_resident(num_slots)
        self._tables = np.zeros((num_slots, blocks_of(self._description.max_seq_len, block_size)), np.int32)
        self._states: dict[int, SamplingState] = {}
        self._step = 0
        self._num_ended = 0
        self._books = threading.Lock()  # guards all of the above against the other thread

    def __repr__(self) -> str:
        c = self._counts
        residents = (
            f"{slot}: {c.computed[slot]}/{c.known[slot]} in {self._tables[slot, : c.blocks[slot]].tolist()}"
            + (" ended" if c.ended[slot] else "")
            for slot in self._states
        )
        return f"<Slots after step {self._step} [{', '.join(residents)}]>"

    def run(self, plan: StepPlan) -> StepResult:
        """Begin and complete `plan`. Raises what they raise."""
        return self.complete(self.begin(plan))

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

    def complete(self, step: Step) -> StepResult:
        """Copy, compute, and append what was sampled. Raises EngineFailed: the session is then over."""
        began = time.perf_counter()
        with self._books:
            self._catch_up(step)
        copied_out_s = _copy(self._engine.copy_out, step.plan.copies_out)
        copied_in_s = _copy(self._engine.copy_in, step.plan.copies_in)
        if len(step.rows.slots):
            sampled = self._engine.execute(step.batch)
            copied_in_s += sampled.copy_wait_s
            with self._books:
                result = self._append(step, sampled)
        else:
            result = StepResult(step=step.plan.step, skipped=step.skipped)
        elapsed_s = time.perf_counter() - began
        return replace(result, elapsed_s=elapsed_s, copied_out_s=copied_out_s, copied_in_s=copied_in_s)

    def _admit(self, plan: StepPlan) -> None:
        """Start sequences and grow block tables."""
        for start in plan.starts:
            self._tables[start.slot, : len(start.blocks)] = start.blocks
            self._states[start.slot] = self._state_of(start)
        ends = self._counts.blocks.copy()  # as after growth, so the blocks find their places from the last back
        for slot, block in zip(reversed(plan.grow_slots), reversed(plan.grow_blocks), strict=True):
            ends[slot] -= 1
            self._tables[slot, ends[slot]] = block

    def _state_of(self, start: Start) -> SamplingState:
        params, index = start.sampling, start.sequence_id.index
        stop_ids = {*params.stop_token_ids, *(() if params.ignore_eos else self._engine.eos_token_ids)}
        return SamplingState(
            sequence_index=index,
            content_hash=content_hash(start.tokens[: start.prompt_len], index, params),
            params=params,
            stop_ids=frozenset(token for token in stop_ids if token < self._description.vocab_size),
            tokens=list(start.tokens),
            prompt_len=start.prompt_len,
        )

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
        """Every step before this one is complete: leave out what they ended, and fill in what they sampled."""
        if step.num_ended != self._num_ended:
            live = np.array([not state.ended for state in step.rows.states], bool)
            step.skipped += step.rows.slots[~live].tolist()
            tables = unpack_tables(step.batch)[live]
            step.rows = step.rows.keep(live)
            step.batch = pack(step.rows, tables, self._description.block_size)
            step.decodes = Decodes.of(step.rows, step.batch)
        step.decodes.fill(step.batch)

    def _append(self, step: Step, sampled: Sampled) -> StepResult:
        """Add to each sequence the token sampled for it, and note where that ends it."""
        wanted: list[Slot] = step.rows.slots[step.rows.sampling].tolist()
        slots, states, tokens = wanted, step.batch.sample_states, sampled.tokens
        if sampled.failures:
            for row in sampled.failures:
                self._end(slots[row], states[row])
            good = [row for row in range(len(wanted)) if row not in sampled.failures]
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
            skipped=step.skipped,
            failures=[(wanted[row], message) for row, message in sampled.failures.items()],
            logprobs=_of_the_good(sampled.logprobs, sampled.failures),
        )

    def _end(self, slot: Slot, state: SamplingState) -> None:
        """Nothing more of the sequence is computed. A later plan may have given its slot to another already."""
        state.ended = True
        self._num_ended += 1
        if self._states.get(slot) is state:
            self._counts.ended[slot] = True


def _of_the_good(logprobs: Mapping[int, TokenLogprobs], failures: Mapping[int, str]) -> dict[int, TokenLogprobs]:
    """By place among the rows that did not fail."""
    good = ((row, scores) for row, scores in logprobs.items() if row not in failures)
    return {row - sum(failed < row for failed in failures): scores for row, scores in good}


def _copy(copy: Callable[[Int32Array, Int32Array], None], blocks: Sequence[tuple[int, int]]) -> float:
    """Move blocks from one pool to the other; the seconds it took."""
    if not blocks:
        return 0.0
    began = time.perf_counter()
    copy(*np.array(blocks, np.int32).T)
    return time.perf_counter() - began


def content_hash(prompt: Sequence[int], sequence_index: int, params: SamplingParams) -> int:
    """64 bits that name a sequence by what decides its tokens: prompt, index and, unless greedy, seed."""
    digest = blake2b(np.asarray(prompt, np.int64).tobytes(), digest_size=8)
    key = [sequence_index] if params.greedy else [sequence_index, params.seed]
    digest.update(np.array(key, np.uint64).tobytes())
    return int.from_bytes(digest.digest(), "little")
