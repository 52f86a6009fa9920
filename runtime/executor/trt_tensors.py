"""The inputs of a step of a TensorRT-LLM engine: what each is, and whether an engine asks for others.

contracts/tensorrt-llm.md section 3.1, for one beam, no draft, no LoRA and no pipeline. Nothing of it has run on a GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from jetway.runtime.errors import ConfigError

Tensor = NDArray[Any]

LOGITS = "logits"
ROW_ENDS = "last_token_ids"  # by it the engine chooses the token of each row of logits
LOGITS_DTYPES = ("float32", "float16")
NUM_PERF_KNOBS = 16


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Type and dimensions of one input. A dimension that has a name is as large as all others of that name."""

    dtype: str
    dims: tuple[str | int, ...]


INPUTS = {
    "input_ids": TensorSpec("int32", ("tokens",)),
    "position_ids": TensorSpec("int32", ("tokens",)),
    "last_token_ids": TensorSpec("int32", ("rows",)),
    "host_request_types": TensorSpec("int32", ("rows",)),
    "context_lengths": TensorSpec("int32", ("rows",)),
    "host_context_lengths": TensorSpec("int32", ("rows",)),
    "sequence_length": TensorSpec("int32", ("rows",)),
    "host_past_key_value_lengths": TensorSpec("int32", ("rows",)),
    "kv_cache_block_offsets": TensorSpec("int32", (1, "rows", 2, "blocks")),
    "host_kv_cache_block_offsets": TensorSpec("int32", (1, "rows", 2, "blocks")),
    "host_kv_cache_pool_pointers": TensorSpec("int64", (1, 2)),
    "host_kv_cache_pool_mapping": TensorSpec("int32", ("layers", 2)),
    "host_max_attention_window_sizes": TensorSpec("int32", ("layers",)),
    "host_sink_token_length": TensorSpec("int32", (1,)),
    "cache_indirection": TensorSpec("int32", ("cache_rows", 1, "window")),
    "host_runtime_perf_knobs": TensorSpec("int64", (NUM_PERF_KNOBS,)),
    "host_context_progress": TensorSpec("int64", (1,)),
    "all_reduce_workspace": TensorSpec("int64", ("workspace",)),
}

# What an engine may do without; which of them it has is a matter of its version and its ranks.
OPTIONAL = ("position_ids", "host_runtime_perf_knobs", "host_context_progress", "all_reduce_workspace")


def on_host(name: str) -> bool:
    """Whether the plugin reads this input on the CPU: the engine itself calls every input a device tensor."""
    return name.startswith("host_") or name == "all_reduce_workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePort:
    """One input or output, as an engine declares it; -1 in `shape` is a size that a step decides."""

    name: str
    dtype: str  # as numpy names it
    shape: tuple[int, ...]
    is_input: bool


def input_names(ports: Sequence[EnginePort], dims: Mapping[str, int]) -> list[str]:
    """The inputs that an engine asks for. Raises ConfigError unless it can be run by what INPUTS holds.

    `dims` are the sizes of the dimensions that no step decides.
    """
    for port in ports:
        if port.is_input:
            _check_input(port, dims)
    _check_outputs([port for port in ports if not port.is_input])
    names = [port.name for port in ports if port.is_input]
    if ROW_ENDS not in names:
        raise ConfigError(
            f"the engine does not ask for {ROW_ENDS}; its logits are of all tokens, not one row a sequence"
        )
    if absent := [name for name in INPUTS if name not in (*names, *OPTIONAL)]:
        raise ConfigError(f"the engine does not ask for {absent[0]}, as one with a paged cache and packed input does")
    return names


def _check_outputs(outputs: Sequence[EnginePort]) -> None:
    given = ", ".join(f"{port.name} {port.dtype}" for port in outputs)
    if [port.name for port in outputs] != [LOGITS] or outputs[0].dtype not in LOGITS_DTYPES:
        raise ConfigError(f"the engine must put out logits in {' or '.join(LOGITS_DTYPES)}; it puts out {given}")


def _check_input(port: EnginePort, dims: Mapping[str, int]) -> None:
    declared = f"the engine asks for {port.name}, {port.dtype}{list(port.shape)}"
    spec = INPUTS.get(port.name)
    if spec is None:
        raise ConfigError(f"{declared}, which Jetway does not know; build it with build-engine, without LoRA or drafts")
    if port.dtype != spec.dtype:
        raise ConfigError(f"{declared}; Jetway binds it as {spec.dtype}")
    bound = [dim if isinstance(dim, int) else dims.get(dim, dim) for dim in spec.dims]
    fits = len(port.shape) == len(bound) and all(
        size in (-1, dim) for size, dim in zip(port.shape, bound, strict=True) if isinstance(dim, int)
    )
    if not fits:
        raise ConfigError(f"{declared}; Jetway binds it as {bound}")
