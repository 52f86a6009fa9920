"""What a mutation of a TensorRT step is, and the tools to write one. The list is tests/mutations."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jetway.runtime.executor.base import Int32Array, StepBatch
from jetway.runtime.executor.trt_bindings import BoundStep
from jetway.runtime.executor.trt_kv import KvLayout

TOKEN_TENSORS = ("input_ids", "position_ids")
ROW_TENSORS = (
    "host_request_types",
    "context_lengths",
    "host_context_lengths",
    "sequence_length",
    "host_past_key_value_lengths",
)
TABLES = ("kv_cache_block_offsets", "host_kv_cache_block_offsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mistake: in a batch, in what is bound, in the layout, in a copy of blocks, in the new pool, in the logits."""

    rule: str
    batch: Callable[[StepBatch], StepBatch] = lambda batch: batch
    bound: Callable[[BoundStep], BoundStep] = lambda step: step
    layout: Callable[[KvLayout], KvLayout] = lambda layout: layout
    slab_bytes: Callable[[KvLayout], int] = lambda layout: layout.block_bytes
    copied_out: Callable[[Int32Array], Int32Array] = lambda blocks: blocks
    copied_in: Callable[[Int32Array], Int32Array] = lambda blocks: blocks
    num_read_columns: Callable[[int], int] = lambda vocab_size: vocab_size
    pool_fill: float = 0.0


NO_MUTATION = Mutation(rule="none")


class Tensors:
    """A bound step's tensors, to be changed in place, wherever they are."""

    def __init__(self, step: BoundStep) -> None:
        self.device = {name: tensor.copy() for name, tensor in step.device.items()}
        self.host = {name: tensor.copy() for name, tensor in step.host.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._place(name)[name]

    def __setitem__(self, name: str, tensor: NDArray[Any]) -> None:
        self._place(name)[name] = tensor

    def _place(self, name: str) -> dict[str, NDArray[Any]]:
        return self.device if name in self.device else self.host

    @property
    def context(self) -> NDArray[np.bool_]:
        """[B] which rows are in the context phase."""
        is_context: NDArray[np.bool_] = self["host_request_types"] == 0
        return is_context

    @property
    def num_tokens(self) -> Int32Array:
        return np.diff(self["last_token_ids"], prepend=np.int32(0))

    @property
    def begins(self) -> Int32Array:
        begins: Int32Array = self["sequence_length"] - self.num_tokens
        return begins

    @property
    def table(self) -> Int32Array:
        """[B, 2, blocks] the offsets on the device; `table = ` sets both tables."""
        table: Int32Array = self[TABLES[0]][0]
        return table

    @table.setter
    def table(self, table: NDArray[Any]) -> None:
        for name in TABLES:
            self[name] = table[None].astype(np.int32)

    @property
    def used(self) -> NDArray[np.bool_]:
        """[B, blocks] which entries of the table are valid: none of V is 0."""
        used: NDArray[np.bool_] = self.table[:, 1] != 0
        return used

    def take_rows(self, order: NDArray[Any]) -> None:
        """Put the rows, with their tokens, into another order."""
        ends, num_tokens = self["last_token_ids"], self.num_tokens
        tokens = np.concatenate([np.arange(ends[row] - num_tokens[row], ends[row]) for row in order])
        for name in TOKEN_TENSORS:
            self[name] = self[name][tokens]
        for name in ROW_TENSORS:
            self[name] = self[name][order]
        for name in TABLES:
            self[name] = self[name][:, order]
        self["last_token_ids"] = np.cumsum(num_tokens[order], dtype=np.int32)


def changed(step: BoundStep, change: Callable[[Tensors], None]) -> BoundStep:
    tensors = Tensors(step)
    change(tensors)
    return replace(step, device=tensors.device, host=tensors.host)


class Mutations(dict[str, Mutation]):
    """A list of mutations by name."""

    def tensors(self, rule: str) -> Callable[[Callable[[Tensors], None]], None]:
        """List a change of the bound tensors under the function's name."""

        def add(change: Callable[[Tensors], None]) -> None:
            self[change.__name__] = Mutation(rule=rule, bound=lambda step: changed(step, change))

        return add

    def constant(self, name: str, value: object) -> None:
        """List another value of a tensor that is alike in every step."""

        def change(step: Tensors) -> None:
            step[name] = np.array(value, step[name].dtype)

        tag = f"{name}={str(value).replace(' ', '')[:20]}"
        self[tag] = Mutation(rule=f"3.1 {name}", bound=lambda step: changed(step, change))
