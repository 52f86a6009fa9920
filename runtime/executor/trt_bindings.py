"""StepBatch to the tensors of a TensorRT-LLM engine's step, in numpy: all of a step but the device.

contracts/tensorrt-llm.md sections 3.1 and 3.4. Tested against a reference interpreter of that contract
(tests/support/trt_interpreter.py); nothing of it has run on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from .base import Int32Array, Int64Array, StepBatch
from .counts import BoolArray
from .trt_kv import KvLayout
from .trt_rank import RankPart
from .trt_tensors import ALL_REDUCE_WORKSPACE, NUM_PERF_KNOBS, EnginePort, Tensor, input_names, on_host

CONTEXT, GENERATION = 0, 1
MULTI_BLOCK_MODE = 0  # the perf knob's place; any value but 1 turns it off
POOL = 0  # a model whose layers have the same number of KV heads has one


@dataclass(frozen=True, slots=True)
class AllReduceWorkspace:
    """Where the ranks of a stage add their shares."""

    addresses: Int64Array  # [7 * tp + 3] what the engine is given
    buffers: object = None  # what must live as long


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What a step's tensors refer to, by address. Fixed once the engine is loaded."""

    kv_pool: int  # address of the pool
    all_reduce_workspace: AllReduceWorkspace | None = None  # with tensor parallelism only


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStep:
    """One step, ready for `execute_async_v3` once `device` is on the device and its holes are filled.

    `host` must stay unchanged until that call returns, `device` until the stream is done. The engine's rows stand in
    another order than the batch's; the index arrays know it.
    """

    device: dict[str, Tensor]  # by the engine's names
    host: dict[str, Tensor]
    num_tokens: int
    holes: Int64Array  # [P] places in input_ids, 0 there, whose token only the device has: ...
    hole_slots: Int64Array  # [P] ... the last one sampled in this slot
    logits_rows: Int64Array  # [S] rows of `logits` to sample from, in the order of the batch's sample_states
    sample_slots: Int64Array  # [S] the slots whose last sampled token this becomes

    @property
    def num_rows(self) -> int:
        """Rows of `logits`: every sequence has one."""
        return len(self.host["host_request_types"])


@dataclass(frozen=True, slots=True)
class _Rows:
    """A batch's rows as the engine wants them: those in the context phase first, each group in the batch's order.

    Context are the tokens that a sequence was started with: a prompt, a recompute, or the last token of a resume.
    """

    order: Int64Array  # [B] the batch's number of each row
    places: Int64Array  # [B] the inverse: where each row of the batch stands
    is_context: BoolArray  # [B] in the engine's order, as all below
    num_tokens: Int32Array  # [B] tokens to compute
    ends: Int32Array  # [B] past and new tokens
    last_token_ids: Int32Array  # [B] tokens up to this row and with it
    token_order: Int64Array  # [T] the batch's number of each packed token

    @classmethod
    def of(cls, batch: StepBatch) -> Self:
        in_context = batch.past_lens < batch.start_lens
        order = np.argsort(~in_context, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        num_tokens = np.diff(batch.subsequence_begins)[order]
        last_token_ids = np.cumsum(num_tokens, dtype=np.int32)
        shifts = batch.subsequence_begins[:-1][order] - (last_token_ids - num_tokens)
        return cls(
            order=order,
            places=places,
            is_context=in_context[order],
            num_tokens=num_tokens,
            ends=batch.past_lens[order] + num_tokens,
            last_token_ids=last_token_ids,
            token_order=np.arange(last_token_ids[-1]) + np.repeat(shifts, num_tokens),
        )

    def check(self, batch: StepBatch, tokens_per_block: int) -> None:
        """What no engine checks, and computes wrongly."""
        assert (self.num_tokens[~self.is_context] == 1).all(), "a sampled token is not fed alone"
        is_chunk = self.is_context & (self.ends < batch.start_lens[self.order])
        assert not (self.num_tokens[is_chunk] % tokens_per_block).any(), "a chunk before the last is not whole blocks"


class StepBinder:
    """Binds batches to one engine, by the engine's own names."""

    def __init__(self, ports: Sequence[EnginePort], part: RankPart, layout: KvLayout, memory: DeviceMemory) -> None:
        """Raises ConfigError for an engine that asks for what is not here."""
        self._names = input_names(ports, part, layout.dims)
        self._layout = layout
        self._memory = memory  # which lives as long
        self._constants = _constant_inputs(layout, memory)
        if ALL_REDUCE_WORKSPACE in self._names:
            assert memory.all_reduce_workspace is not None, "a tensor-parallel engine without a workspace"

    def bind(self, batch: StepBatch) -> BoundStep:
        rows = _Rows.of(batch)
        rows.check(batch, self._layout.tokens_per_block)
        known = (
            self._constants | _token_inputs(batch, rows) | _row_inputs(batch, rows) | self._block_tables(batch, rows)
        )
        bound = {name: known[name] for name in self._names}
        sampled_rows = np.searchsorted(batch.subsequence_begins, batch.sample_tokens, side="right") - 1
        return BoundStep(
            device={name: tensor for name, tensor in bound.items() if not on_host(name)},
            host={name: tensor for name, tensor in bound.items() if on_host(name)},
            num_tokens=int(rows.last_token_ids[-1]),
            holes=rows.last_token_ids[rows.places[batch.pending_rows]].astype(np.int64) - 1,
            hole_slots=batch.row_slots[batch.pending_rows],
            logits_rows=rows.places[sampled_rows],
            sample_slots=batch.row_slots[sampled_rows],
        )

    def _block_tables(self, batch: StepBatch, rows: _Rows) -> dict[str, Tensor]:
        table = self._layout.offsets(batch.block_indices, np.diff(batch.block_indices_begins), rows.order)
        return {"kv_cache_block_offsets": table, "host_kv_cache_block_offsets": table}


def _constant_inputs(layout: KvLayout, memory: DeviceMemory) -> dict[str, Tensor]:
    """What is the same in every step."""
    layers = np.arange(layout.num_layers)
    knobs = np.full(NUM_PERF_KNOBS, -1, np.int64)
    knobs[MULTI_BLOCK_MODE] = 1
    shared = memory.all_reduce_workspace
    return ({} if shared is None else {ALL_REDUCE_WORKSPACE: shared.addresses}) | {
        "host_kv_cache_pool_pointers": np.array([[memory.kv_pool, 0]], np.int64),  # no second pool on the host
        "host_kv_cache_pool_mapping": np.stack((np.full_like(layers, POOL), layers), axis=1).astype(np.int32),
        # Below the length of a sequence this would make its cache a ring.
        "host_max_attention_window_sizes": np.full(layout.num_layers, layout.max_seq_len, np.int32),
        "host_sink_token_length": np.zeros(1, np.int32),
        # Read for its shape only: one beam, and the window.
        "cache_indirection": np.zeros((1, 1, layout.max_seq_len), np.int32),
        "host_runtime_perf_knobs": knobs,
        "host_context_progress": np.zeros(1, np.int64),  # a pointer
    }


def _token_inputs(batch: StepBatch, rows: _Rows) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[rows.token_order].astype(np.int32),
        "position_ids": batch.position_ids[rows.token_order].astype(np.int32),
    }


def _row_inputs(batch: StepBatch, rows: _Rows) -> dict[str, Tensor]:
    """Lengths. In context, `context_lengths` counts this chunk; later, all tokens that came in by context."""
    context_lengths = np.where(rows.is_context, rows.num_tokens, batch.start_lens[rows.order])
    return {
        "last_token_ids": rows.last_token_ids,
        "host_request_types": np.where(rows.is_context, CONTEXT, GENERATION).astype(np.int32),
        "context_lengths": context_lengths,
        "host_context_lengths": context_lengths,
        "sequence_length": rows.ends,
        # Not the past of a context row, despite the name: the attention kernel takes it for the whole KV length.
        "host_past_key_value_lengths": np.where(rows.is_context, rows.ends, rows.ends - 1),
    }
