"""A judge of the tensors of a TensorRT-LLM step, written from contracts/tensorrt-llm.md sections 3.1 to 3.4 alone.

It shares nothing with runtime/: names, types and rules stand here a second time, so that a mistake there shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]
Integers = NDArray[np.int32]

# name: dtype and dimensions. T tokens, B rows, P pools, W blocks a row, L layers; free: see `_check_constants`.
DEVICE_INPUTS = {
    "input_ids": ("int32", "T"),
    "position_ids": ("int32", "T"),
    "last_token_ids": ("int32", "B"),
    "context_lengths": ("int32", "B"),
    "sequence_length": ("int32", "B"),
    "kv_cache_block_offsets": ("int32", "PB2W"),
    "cache_indirection": ("int32", "free"),
}
HOST_INPUTS = {
    "host_request_types": ("int32", "B"),
    "host_context_lengths": ("int32", "B"),
    "host_past_key_value_lengths": ("int32", "B"),
    "host_kv_cache_block_offsets": ("int32", "PB2W"),
    "host_kv_cache_pool_pointers": ("int64", "P2"),
    "host_kv_cache_pool_mapping": ("int32", "L2"),
    "host_max_attention_window_sizes": ("int32", "L"),
    "host_sink_token_length": ("int32", "1"),
    "host_runtime_perf_knobs": ("int64", "K"),
    "host_context_progress": ("int64", "1"),
}
# In an engine of several ranks: what is tokens in the first stage, and where a stage's ranks add up.
HIDDEN_STATES = {"hidden_states_input": ("float32", "TH")}
WORKSPACE = {"all_reduce_workspace": ("int64", "A")}
CONTEXT, GENERATION = 0, 1


class ContractViolation(AssertionError):
    """The engine would read something else than was meant, or refuse the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the engine was built for, and its pool."""

    num_layers: int
    tokens_per_block: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    vocab_size: int
    num_blocks: int
    pool_address: int
    is_first_stage: bool = True
    hidden_size: int = 0
    workspace: tuple[int, ...] = ()  # what the rank was given, where a stage has several

    @property
    def device_inputs(self) -> dict[str, tuple[str, str]]:
        if self.is_first_stage:
            return DEVICE_INPUTS
        return HIDDEN_STATES | {name: each for name, each in DEVICE_INPUTS.items() if name != "input_ids"}

    @property
    def host_inputs(self) -> dict[str, tuple[str, str]]:
        return HOST_INPUTS | (WORKSPACE if self.workspace else {})

    @property
    def table_width(self) -> int:
        return -(-self.max_seq_len // self.tokens_per_block)


@dataclass(frozen=True, slots=True)
class Step:
    """A step's rows as the plugin sees them, once the tensors have passed."""

    num_context_rows: int
    num_tokens: Integers  # [B]
    first_tokens: Integers  # [B] packed number of each row's first token
    ends: Integers  # [B] sequence_length
    context_ends: Integers  # [B] where the context pass ended that each row is, or follows
    key_offsets: Integers  # [B, W]
    value_offsets: Integers  # [B, W]
    num_blocks: Integers  # [B] valid entries
    context_kv_len: int  # the KV length that the context kernel is given
    generation_kv_len: int
    layer_in_pool: Integers  # [L]

    @property
    def begins(self) -> Integers:
        return self.ends - self.num_tokens

    @classmethod
    def judged(cls, device: Tensors, host: Tensors, profile: Profile) -> Self:
        """Raises ContractViolation."""
        _check_shapes(device, host, profile)
        _check_constants(device, host, profile)
        _check_batch(device, host, profile)
        _check_lengths(device, host, profile)
        _check_table(device, host, profile)
        num_tokens = np.diff(device["last_token_ids"], prepend=np.int32(0))
        num_context_rows = int((host["host_request_types"] == CONTEXT).sum())
        past = host["host_past_key_value_lengths"]
        return cls(
            num_context_rows=num_context_rows,
            num_tokens=num_tokens,
            first_tokens=device["last_token_ids"] - num_tokens,
            ends=device["sequence_length"],
            context_ends=np.where(
                host["host_request_types"] == CONTEXT, device["sequence_length"], device["context_lengths"]
            ),
            key_offsets=device["kv_cache_block_offsets"][0, :, 0],
            value_offsets=device["kv_cache_block_offsets"][0, :, 1],
            num_blocks=-(-device["sequence_length"] // profile.tokens_per_block),
            context_kv_len=int(past[:num_context_rows].max(initial=0)),
            generation_kv_len=int(past[num_context_rows:].max(initial=0)) + 1,
            layer_in_pool=host["host_kv_cache_pool_mapping"][:, 1],
        )


def _require(condition: object, rule: str) -> None:
    if not condition:
        raise ContractViolation(rule)


def _check_shapes(device: Tensors, host: Tensors, profile: Profile) -> None:
    sizes = {"P": 1, "2": 2, "1": 1, "L": profile.num_layers, "K": 16, "W": profile.table_width}
    sizes |= {"H": profile.hidden_size, "A": len(profile.workspace)}
    for place, tensors, wanted in (("device", device, profile.device_inputs), ("host", host, profile.host_inputs)):
        _require(set(tensors) == set(wanted), f"on the {place}: {sorted(set(tensors) ^ set(wanted))}")
        for name, (dtype, dims) in wanted.items():
            _require(tensors[name].dtype == dtype, f"{name} is {tensors[name].dtype}")
            if dims != "free":
                _require(tensors[name].ndim == len(dims), f"{name} has {tensors[name].ndim} dimensions")
                found = dict(zip(dims, tensors[name].shape, strict=True))
                _require({**found, **sizes}.items() >= found.items(), f"{name} is {tensors[name].shape}")
                sizes |= found
    _require(1 <= sizes["T"] <= profile.max_num_tokens, f"{sizes['T']} tokens in a step")
    _require(1 <= sizes["B"] <= profile.max_batch_size, f"{sizes['B']} sequences in a step")


def _check_constants(device: Tensors, host: Tensors, profile: Profile) -> None:
    _require(host["host_kv_cache_pool_pointers"].tolist() == [[profile.pool_address, 0]], "pool pointers")
    layers = [[0, layer] for layer in range(profile.num_layers)]
    _require(host["host_kv_cache_pool_mapping"].tolist() == layers, "each layer has its place in the pool")
    _require((host["host_max_attention_window_sizes"] == profile.max_seq_len).all(), "the cache becomes a ring")
    _require(host["host_sink_token_length"].tolist() == [0], "sink tokens")
    _require(host["host_context_progress"].tolist() == [0], "a pointer that is none")
    _require(host["host_runtime_perf_knobs"].tolist() == [1] + [-1] * 15, "perf knobs")
    if profile.workspace:
        _require(host["all_reduce_workspace"].tolist() == [*profile.workspace], "the workspace is another rank's")
    indirection = device["cache_indirection"].shape
    _require(indirection[1:] == (1, profile.max_seq_len), f"beam width and window are {indirection[1:]}")
    _require(1 <= indirection[0] <= profile.max_batch_size, f"cache_indirection has {indirection[0]} rows")


def _check_batch(device: Tensors, host: Tensors, profile: Profile) -> None:
    types, num_packed = host["host_request_types"], len(device["position_ids"])
    _require(np.isin(types, (CONTEXT, GENERATION)).all(), "a request type that is none")
    _require((np.diff(types) >= 0).all(), "a context row after a generation row")
    num_tokens = np.diff(device["last_token_ids"], prepend=np.int32(0))
    _require((num_tokens >= 1).all() and device["last_token_ids"][-1] == num_packed, "last_token_ids ends at T")
    _require((num_tokens[types == GENERATION] == 1).all(), "a generation row feeds exactly one token")
    context_tokens = host["host_context_lengths"][types == CONTEXT]
    _require((num_tokens[types == CONTEXT] == context_tokens).all(), "the split of context tokens")
    if profile.is_first_stage:
        ids = device["input_ids"]
        _require(((ids >= 0) & (ids < profile.vocab_size)).all(), "a token that is none")


def _check_lengths(device: Tensors, host: Tensors, profile: Profile) -> None:
    ends, is_context = device["sequence_length"], host["host_request_types"] == CONTEXT
    num_tokens = np.diff(device["last_token_ids"], prepend=np.int32(0))
    _require((device["context_lengths"] == host["host_context_lengths"]).all(), "context lengths differ by place")
    _require((ends >= num_tokens).all() and (ends <= profile.max_seq_len).all(), "sequence_length")
    positions = np.arange(num_tokens.sum()) + np.repeat(ends - np.cumsum(num_tokens), num_tokens)
    _require((device["position_ids"] == positions).all(), "position_ids")
    past = np.where(is_context, ends, ends - 1)
    _require((host["host_past_key_value_lengths"] == past).all(), "host_past_key_value_lengths")
    _require((device["context_lengths"][~is_context] < ends[~is_context]).all(), "a generation row within its context")


def _check_table(device: Tensors, host: Tensors, profile: Profile) -> None:
    table = device["kv_cache_block_offsets"]
    _require((table == host["host_kv_cache_block_offsets"]).all(), "the two block tables differ")
    used = -(-device["sequence_length"] // profile.tokens_per_block)
    valid = np.arange(profile.table_width) < used[:, None]
    keys, values, stride = table[0, :, 0], table[0, :, 1], 2 * profile.num_layers
    _require((keys >= 0).all() and (values >= 0).all(), "an address in the host's pool")
    _require((keys < profile.num_blocks * stride).all(), "an address beyond the pool")
    _require(
        (keys % stride == 0).all() and (values == keys + 1)[valid].all(), "offset = block * layers * 2 + (K 0, V 1)"
    )
    _require(not keys[~valid].any() and not values[~valid].any(), "an unused entry is not 0")


def check_chunks(device: Tensors, host: Tensors, read_rows: NDArray[np.int64], profile: Profile) -> None:
    """Raise ContractViolation unless all chunks before the last, whose logits nobody reads, are whole blocks."""
    num_tokens = np.diff(device["last_token_ids"], prepend=np.int32(0))
    is_chunk = host["host_request_types"] == CONTEXT
    is_chunk[read_rows] = False
    _require(not (num_tokens[is_chunk] % profile.tokens_per_block).any(), "a chunk before the last is not whole blocks")
