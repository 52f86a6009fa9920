"""Rows of a step to packed arrays, and rows left out again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Int32Array, Int64Array, SamplingState, StepBatch
from .counts import BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What each of B rows computes: the next `num_tokens` known tokens after `past`; where it is `sampling`, to the last."""

    slots: Int64Array  # [B]
    states: Sequence[SamplingState]  # [B]
    past: Int32Array  # [B]
    num_tokens: Int32Array  # [B]
    sampling: BoolArray  # [B]
    start_lens: Int32Array  # [B] tokens that the sequence was started with

    @property
    def decodes(self) -> BoolArray:
        """[B] Rows whose one token is the last known: it may still be unknown when the row is packed."""
        single: BoolArray = self.num_tokens == 1
        return self.sampling & single

    def keep(self, kept: BoolArray) -> "Rows":
        return Rows(
            slots=self.slots[kept],
            states=[state for state, stays in zip(self.states, kept, strict=True) if stays],
            past=self.past[kept],
            num_tokens=self.num_tokens[kept],
            sampling=self.sampling[kept],
            start_lens=self.start_lens[kept],
        )


def pack(rows: Rows, tables: Int32Array, block_size: int) -> StepBatch:
    """The rows' arrays; `tables` [B, most blocks] are their block tables. `input_ids` of decodes are filled in later."""
    ends = rows.past + rows.num_tokens
    begins = _prefix_sums(rows.num_tokens)
    num_blocks = -(-ends // block_size)
    input_ids = np.zeros(begins[-1], np.int64)
    for row in np.flatnonzero(~rows.decodes).tolist():
        input_ids[begins[row] : begins[row + 1]] = rows.states[row].tokens[rows.past[row] : ends[row]]
    width = int(num_blocks.max(initial=0))
    return StepBatch(
        input_ids=input_ids,
        position_ids=np.arange(len(input_ids)) + np.repeat(rows.past - begins[:-1], rows.num_tokens),
        past_lens=rows.past,
        subsequence_begins=begins,
        block_indices=tables[:, :width][np.arange(width) < num_blocks[:, None]],
        block_indices_begins=_prefix_sums(num_blocks),
        max_context_len=int(ends.max(initial=0)),
        sample_tokens=begins[1:][rows.sampling].astype(np.int64) - 1,
        sample_states=[rows.states[row] for row in np.flatnonzero(rows.sampling).tolist()],
        row_slots=rows.slots,
        start_lens=rows.start_lens,
    )


def unpack_tables(batch: StepBatch) -> Int32Array:
    """[B, most blocks] The block tables that were packed."""
    num_blocks = np.diff(batch.block_indices_begins)
    tables = np.zeros((len(num_blocks), num_blocks.max(initial=0)), np.int32)
    tables[np.arange(tables.shape[1]) < num_blocks[:, None]] = batch.block_indices
    return tables


@dataclass(frozen=True, slots=True)
class Decodes:
    """Where a batch takes the last known token of which sequences: it may still be unknown when the batch is packed."""

    rows: Int64Array
    places: Int64Array  # in `input_ids`
    past: Int32Array  # tokens before it
    states: Sequence[SamplingState]

    @classmethod
    def of(cls, rows: Rows, batch: StepBatch) -> "Decodes":
        decodes = np.flatnonzero(rows.decodes)
        places = batch.subsequence_begins[decodes].astype(np.int64)
        return cls(decodes, places, rows.past[decodes], [rows.states[row] for row in decodes.tolist()])

    def split(self) -> "tuple[Decodes, Decodes]":
        """Those whose token is known by now, and the others."""
        known = np.array([len(state.tokens) for state in self.states], np.int32) > self.past
        return self._only(known), self._only(~known)

    def fill(self, batch: StepBatch) -> None:
        """Modifies `input_ids`."""
        batch.input_ids[self.places] = [state.tokens[-1] for state in self.states]

    def _only(self, kept: BoolArray) -> "Decodes":
        states = [state for state, stays in zip(self.states, kept, strict=True) if stays]
        return Decodes(self.rows[kept], self.places[kept], self.past[kept], states)


def _prefix_sums(counts: Int32Array) -> Int32Array:
    """[0, counts[0], counts[0] + counts[1], ...]"""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
