"""A reference interpreter of TensorRT-LLM's step contract: bound tensors in, logits out, on its own KV pool.

It knows nothing of batches, slots or sequences. Each tensor is judged by the contract, and then read as the plugin
reads it: positions from the lengths, keys and values by address from pool pointer, pool mapping and offset table.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.support.trt_contract import (
    ContractViolation,
    Integers,
    Profile,
    Step,
    Tensors,
)
from tests.support.trt_llama import Floats, Llama


@dataclass(frozen=True, slots=True)
class Sizes:
    """No two alike, nor like those of SMALL_MODEL, nor whole blocks, so that one in another's place shows."""

    tokens_per_block: int = 8
    num_blocks: int = 66
    max_batch_size: int = 9
    max_num_tokens: int = 129
    max_seq_len: int = 99


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output, as an engine declares it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_input: bool = True


class Interpreter:
    def __init__(
        self, model: Llama, sizes: Sizes, *, pool_fill: float = 0.0, pool: NDArray[np.uint8] | None = None
    ) -> None:
        """`pool`: bytes of another's to compute in, instead of a pool of its own."""
        self._model = model
        slabs = (sizes.num_blocks * model.num_layers * 2, model.num_kv_heads, sizes.tokens_per_block, model.head_size)
        own = np.full(slabs, pool_fill, np.float32) if pool is None else pool.view(np.float32).reshape(slabs)
        self._pool: Floats = own
        self._slab_bytes = self._pool[0].nbytes  # of K or V of one layer in one block
        self._context_ends = np.zeros(sizes.num_blocks, np.int32)  # length of the sequence whose context ended there
        self.profile = Profile(
            num_layers=model.num_layers,
            tokens_per_block=sizes.tokens_per_block,
            max_batch_size=sizes.max_batch_size,
            max_num_tokens=sizes.max_num_tokens,
            max_seq_len=sizes.max_seq_len,
            vocab_size=model.vocab_size,
            num_blocks=sizes.num_blocks,
            pool_address=self._pool.ctypes.data,
            is_first_stage=model.is_first_stage,
            hidden_size=model.hidden_size,
            workspace=model.workspace,
        )

    @property
    def ports(self) -> list[Port]:
        """As a built engine lists them, sizes that a step decides as -1."""
        sizes = {"P": 1, "2": 2, "1": 1, "K": 16, "L": self.profile.num_layers}
        sizes |= {"H": self.profile.hidden_size, "A": len(self.profile.workspace)}
        inputs = [
            Port(name, dtype, (-1, 1, -1) if dims == "free" else tuple(sizes.get(dim, -1) for dim in dims))
            for name, (dtype, dims) in (self.profile.device_inputs | self.profile.host_inputs).items()
        ]
        return [*inputs, Port(self._model.output, "float32", (-1, self._model.output_width), is_input=False)]

    def read(self, address: int, num_bytes: int) -> NDArray[np.uint8]:
        begin = address - self.profile.pool_address
        if begin + num_bytes > self._pool.nbytes:
            raise ContractViolation("a copy beyond the pool")
        return self._pool.reshape(-1).view(np.uint8)[begin : begin + num_bytes].copy()

    def write(self, address: int, content: NDArray[np.uint8]) -> None:
        begin = address - self.profile.pool_address
        if begin + len(content) > self._pool.nbytes:
            raise ContractViolation("a copy beyond the pool")
        self._pool.reshape(-1).view(np.uint8)[begin : begin + len(content)] = content

    @np.errstate(invalid="ignore")  # NaN is an answer: the sampler finds it
    def run(self, device: Tensors, host: Tensors) -> Floats:
        """The step's logits [B, padded vocabulary], or hidden states [T, hidden size]. Raises ContractViolation."""
        step = Step.judged(device, host, self.profile)
        self._follow_context(step)
        positions = np.arange(step.num_tokens.sum()) + np.repeat(step.begins - step.first_tokens, step.num_tokens)
        x = self._model.enter(device)
        for layer in range(self._model.num_layers):
            queries, keys, values = self._model.queries_keys_values(layer, x, positions)
            base = host["host_kv_cache_pool_pointers"][0, 0] + step.layer_in_pool[layer] * 2 * self._slab_bytes
            first_slab = int(base - self.profile.pool_address) // self._slab_bytes
            self._store(keys, first_slab + step.key_offsets, positions, step)
            self._store(values, first_slab + step.value_offsets, positions, step)
            attended = self._attend(queries, first_slab, step)
            x = self._model.after_attention(layer, x, attended)
        return self._model.leave(x, device)

    def _follow_context(self, step: Step) -> None:
        """Generation rows name the length their last context pass ended at; remembers where this step's passes end."""
        rows, split = np.arange(len(step.ends)), step.num_context_rows
        entries = step.key_offsets[rows, (step.context_ends - 1) // self.profile.tokens_per_block]
        blocks = entries // (2 * self.profile.num_layers)
        if (self._context_ends[blocks[split:]] != step.context_ends[split:]).any():
            raise ContractViolation("a generation row's context_lengths is not where its context ended")
        self._context_ends[blocks[:split]] = step.context_ends[:split]

    def _store(self, rows: Floats, slabs: Integers, positions: Integers, step: Step) -> None:
        """Write each token's keys, or values, [T, heads, head_size] where the table says."""
        size = self.profile.tokens_per_block
        row_of_token = np.repeat(np.arange(len(step.num_tokens)), step.num_tokens)
        self._pool[slabs[row_of_token, positions // size], :, positions % size] = rows

    def _attend(self, queries: Floats, first_slab: int, step: Step) -> Floats:
        """Attention of every token over its row, [T, heads, head_size]; each phase has its kernel and its KV length."""
        attended = np.empty_like(queries)
        rows, split = np.arange(len(step.ends), dtype=np.int32), step.num_context_rows
        for phase, kv_len in ((rows[:split], step.context_kv_len), (rows[split:], step.generation_kv_len)):
            if len(phase):
                self._attend_phase(queries, attended, first_slab, Phase.of(step, phase, kv_len))
        return attended

    def _attend_phase(self, queries: Floats, attended: Floats, first_slab: int, phase: "Phase") -> None:
        model, num_pages = self._model, -(-phase.kv_len // self.profile.tokens_per_block)
        num_rows, width = phase.tokens.shape
        # Whole pages, so unused rows too: stale numbers do no harm, NaN would.
        keys, values = (
            self._pool[first_slab + offsets[:, :num_pages]]
            .transpose(0, 2, 1, 3, 4)
            .reshape(num_rows, model.num_kv_heads, -1, model.head_size)
            for offsets in (phase.key_offsets, phase.value_offsets)
        )
        grouped = queries[phase.tokens].reshape(num_rows, width, model.num_kv_heads, -1, model.head_size)
        grouped = grouped.transpose(0, 2, 3, 1, 4).reshape(num_rows, model.num_kv_heads, -1, model.head_size)
        scores = (grouped @ keys.swapaxes(2, 3)).reshape(num_rows, model.num_heads, width, -1)
        key_positions = np.arange(scores.shape[3])
        seen = (key_positions <= phase.positions[:, :, None]) & (key_positions < phase.kv_len)
        scores = np.where(seen[:, None], scores / np.float32(np.sqrt(model.head_size)), np.float32(-np.inf))
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        weights /= weights.sum(axis=3, keepdims=True)
        mixed = weights.reshape(num_rows, model.num_kv_heads, -1, scores.shape[3]) @ values
        by_token = mixed.reshape(num_rows, model.num_heads, width, -1).swapaxes(1, 2)
        attended[phase.tokens[phase.valid]] = by_token[phase.valid]


@dataclass(frozen=True, slots=True)
class Phase:
    """Some rows of a step, padded to the longest: arrays [rows, width]."""

    kv_len: int
    tokens: Integers  # packed numbers; where not `valid`, some token
    valid: NDArray[np.bool_]
    positions: Integers
    key_offsets: Integers  # [rows, W]
    value_offsets: Integers

    @classmethod
    def of(cls, step: Step, rows: Integers, kv_len: int) -> "Phase":
        num_tokens = step.num_tokens[rows, None]
        places = np.arange(num_tokens.max())
        return cls(
            kv_len=kv_len,
            tokens=step.first_tokens[rows, None] + np.minimum(places, num_tokens - 1),
            valid=places < num_tokens,
            positions=step.begins[rows, None] + places,
            key_offsets=step.key_offsets[rows],
            value_offsets=step.value_offsets[rows],
        )
