"""Sequences to arrays: applies each StepPlan, as if serial, to the resident sequences and to an engine."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from jetway.scheduler.plan import Slot, Start, StepPlan, StepResult, TokenLogprobs
from jetway.scheduler.request import SamplingParams

from .base import Engine, Int32Array, Int64Array, SamplingState, StepBatch
from .counts import BoolArray, PlanError, SlotCounts, blocks_of


class Slots:
    """The sequences resident in an engine, by slot; a session's state.

    Counts and block tables are arrays over all slots, so that a step's batch is built without a loop over tokens.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._description = engine.describe()
        num_slots, block_size = self._description.max_num_seqs, self._description.block_size
        self._counts = SlotCounts.none_resident(num_slots)
        self._tables = np.zeros((num_slots, blocks_of(self._description.max_seq_len, block_size)), np.int32)
        self._last = np.zeros(num_slots, np.int64)  # the last known token: a decode's input
        self._states: dict[int, SamplingState] = {}
        self._step = 0

    def __repr__(self) -> str:
        c = self._counts
        residents = (
            f"{slot}: {c.computed[slot]}/{c.known[slot]} in {self._tables[slot, : c.blocks[slot]].tolist()}"
            + (" ended" if c.ended[slot] else "")
            for slot in self._states
        )
        return f"<Slots after step {self._step} [{', '.join(residents)}]>"

    def run(self, plan: StepPlan) -> StepResult:
        """Do all of `plan` and say what it gave.

        Raises PlanError for an illegal plan, which then changed nothing, and EngineFailed when the step cannot be
        computed; the session is then over.
        """
        arrived = time.perf_counter()
        if plan.step != self._step + 1:
            raise PlanError(f"step {plan.step} follows step {self._step}")
        self._counts = self._counts.after(plan, self._description)
        self._step = plan.step
        for slot in plan.releases:
            del self._states[slot]
        copied_out_s = _copy(self._engine.copy_out, plan.copies_out)
        copied_in_s = _copy(self._engine.copy_in, plan.copies_in)
        self._admit(plan)
        result = self._compute(plan)
        elapsed_s = time.perf_counter() - arrived
        return replace(result, elapsed_s=elapsed_s, copied_out_s=copied_out_s, copied_in_s=copied_in_s)

    def _admit(self, plan: StepPlan) -> None:
        """Start sequences and grow block tables."""
        for start in plan.starts:
            self._tables[start.slot, : len(start.blocks)] = start.blocks
            self._last[start.slot] = start.tokens[-1]
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

    def _compute(self, plan: StepPlan) -> StepResult:
        """Execute the rows of sequences that have not ended, and append what was sampled."""
        slots, tokens = np.asarray(plan.row_slots, np.int64), np.asarray(plan.row_tokens, np.int32)
        live = ~self._counts.ended[slots]
        skipped: list[Slot] = slots[~live].tolist()
        slots, tokens = slots[live], tokens[live]
        if not len(slots):
            return StepResult(step=plan.step, skipped=skipped)
        sampling = self._counts.computed[slots] + tokens == self._counts.known[slots]
        sampled = self._engine.execute(self._batch(slots, tokens, sampling))
        self._counts.computed[slots] += tokens
        wanted, failures = slots[sampling], sampled.failures
        good = [i for i in range(len(wanted)) if i not in failures] if failures else slice(None)
        self._counts.ended[wanted[list(failures)]] = True
        tokens_of_good = np.array(sampled.tokens, np.int64)[good]
        return StepResult(
            step=plan.step,
            slots=wanted[good].tolist(),
            tokens=tokens_of_good.tolist(),
            stopped=self._append(wanted[good], tokens_of_good),
            skipped=skipped,
            failures=[(Slot(int(wanted[i])), message) for i, message in failures.items()],
            logprobs=_of_the_good(sampled.logprobs, failures),
        )

    def _append(self, slots: Int64Array, tokens: Int64Array) -> list[bool]:
        """Add to each sequence the token sampled for it; where that ends it."""
        stopped = []
        for slot, token in zip(slots.tolist(), tokens.tolist(), strict=True):
            state = self._states[slot]
            state.tokens.append(token)
            stopped.append(token in state.stop_ids)
        self._last[slots] = tokens
        self._counts.known[slots] += 1
        self._counts.ended[slots] = stopped
        return stopped

    def _batch(self, slots: Int64Array, num_tokens: Int32Array, sampling: BoolArray) -> StepBatch:
        """The arrays for the next `num_tokens` known tokens of each slot; rows where `sampling` want logits."""
        past = self._counts.computed[slots]
        ends = past + num_tokens
        begins = _prefix_sums(num_tokens)
        decodes = sampling & (num_tokens == 1)
        input_ids = np.empty(begins[-1], np.int64)
        input_ids[begins[:-1][decodes]] = self._last[slots[decodes]]
        for row in np.flatnonzero(~decodes):
            input_ids[begins[row] : begins[row + 1]] = self._states[slots[row]].tokens[past[row] : ends[row]]
        num_blocks = -(-ends // self._description.block_size)
        width = int(num_blocks.max())
        used = np.arange(width) < num_blocks[:, None]
        return StepBatch(
            input_ids=input_ids,
            position_ids=np.arange(len(input_ids)) + np.repeat(past - begins[:-1], num_tokens),
            past_lens=past,
            subsequence_begins=begins,
            block_indices=self._tables[:, :width][slots][used],
            block_indices_begins=_prefix_sums(num_blocks),
            max_context_len=int(ends.max()),
            sample_tokens=begins[1:][sampling].astype(np.int64) - 1,
            sample_states=[self._states[slot] for slot in slots[sampling].tolist()],
            row_slots=slots,
            start_lens=self._counts.started[slots],
        )


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


def _prefix_sums(counts: Int32Array) -> Int32Array:
    """[0, counts[0], counts[0] + counts[1], ...]"""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
