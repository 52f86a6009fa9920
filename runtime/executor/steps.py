"""Sequences to arrays: applies each StepPlan, as if serial, to the resident sequences and to an engine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from jetway.scheduler.plan import Slot, Start, StepPlan, StepResult
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
        wanted: list[Slot] = slots[sampling].tolist()
        self._counts.ended[[wanted[i] for i in sampled.failures]] = True
        good = [i for i in range(len(wanted)) if i not in sampled.failures]
        good_slots, good_tokens = [wanted[i] for i in good], [sampled.tokens[i] for i in good]
        return StepResult(
            step=plan.step,
            slots=good_slots,
            tokens=good_tokens,
            stopped=self._append(good_slots, good_tokens),
            skipped=skipped,
            failures=[(wanted[i], message) for i, message in sampled.failures.items()],
            logprobs={place: sampled.logprobs[i] for place, i in enumerate(good) if i in sampled.logprobs},
        )

    def _append(self, slots: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Add to each sequence the token sampled for it; where that ends it."""
        states = [self._states[slot] for slot in slots]
        for state, token in zip(states, tokens, strict=True):
            state.tokens.append(token)
        stopped = [token in state.stop_ids for state, token in zip(states, tokens, strict=True)]
        self._counts.known[slots] += 1
        self._counts.ended[slots] = stopped
        return stopped

    def _batch(self, slots: Int64Array, num_tokens: Int32Array, sampling: BoolArray) -> StepBatch:
        """The arrays for the next `num_tokens` known tokens of each slot; rows where `sampling` want logits."""
        past = self._counts.computed[slots]
        ends = past + num_tokens
        begins = _prefix_sums(num_tokens)
        states = [self._states[slot] for slot in slots.tolist()]
        packed: list[int] = []
        for state, first, end in zip(states, past.tolist(), ends.tolist(), strict=True):
            packed += state.tokens[first:end]
        num_blocks = -(-ends // self._description.block_size)
        width = int(num_blocks.max())
        used = np.arange(width) < num_blocks[:, None]
        return StepBatch(
            input_ids=np.array(packed, np.int64),
            position_ids=np.arange(len(packed)) + np.repeat(past - begins[:-1], num_tokens),
            past_lens=past,
            subsequence_begins=begins,
            block_indices=self._tables[:, :width][slots][used],
            block_indices_begins=_prefix_sums(num_blocks),
            max_context_len=int(ends.max()),
            sample_tokens=begins[1:][sampling].astype(np.int64) - 1,
            sample_states=[state for state, wanted in zip(states, sampling.tolist(), strict=True) if wanted],
            row_slots=slots,
            start_lens=self._counts.started[slots],
        )


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
