"""The inputs of a step of a TensorRT-LLM engine: what each is, and whether an engine asks for others.

contracts/tensorrt-llm.md section 3.1, for one beam, no draft and no LoRA. Nothing of it has run on a GPU.

A pipeline's stages hand hidden states on inside the network, by nodes of their own: the contract says that an engine of
several ranks has NCCL in it, and names `hidden_states_input` and `hidden_states_output` as what replaces tokens and
logits. That these two are there for their shapes, and that nothing is to be carried from one to the other, is inferred.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from jetway.runtime.errors import ConfigError

from .trt_rank import RankPart

Tensor = NDArray[Any]

TOKENS = "input_ids"
LOGITS = "logits"
ALL_REDUCE_WORKSPACE = "all_reduce_workspace"
HIDDEN_STATES_INPUT, HIDDEN_STATES_OUTPUT = "hidden_states_input", "hidden_states_output"
ROW_ENDS = "last_token_ids"  # by it the engine chooses the token of each row of logits
LOGITS_DTYPES = ("float32", "float16")
HIDDEN_STATES_DTYPES = ("float32", "float16", "bfloat16")
NUM_PERF_KNOBS = 16


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Type and dimensions of one input. A dimension that has a name is as large as all others of that name."""

    dtype: str
    dims: tuple[str | int, ...]


INPUTS = {
    TOKENS: TensorSpec("int32", ("tokens",)),
    "position_ids": TensorSpec("int32", ("tokens",)),
    ROW_ENDS: TensorSpec("int32", ("rows",)),
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
    ALL_REDUCE_WORKSPACE: TensorSpec("int64", ("workspace",)),
}

# What an engine may do without; which of them it has is a matter of its version and its ranks.
OPTIONAL = ("position_ids", "host_runtime_perf_knobs", "host_context_progress", ALL_REDUCE_WORKSPACE)


def on_host(name: str) -> bool:
    """Whether the plugin reads this input on the CPU: the engine itself calls every input a device tensor."""
    return name.startswith("host_") or name == ALL_REDUCE_WORKSPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePort:
    """One input or output, as an engine declares it; -1 in `shape` is a size that a step decides."""

    name: str
    dtype: str  # as torch names it
    shape: tuple[int, ...]
    is_input: bool


def workspace_size(tp_size: int) -> int:
    """Of all_reduce_workspace."""
    return 7 * tp_size + 3


def input_names(ports: Sequence[EnginePort], part: RankPart, dims: Mapping[str, int]) -> list[str]:
    """Which of INPUTS an engine asks for. Raises ConfigError unless it can be run by those, as this part of the whole.

    `dims` are the sizes of the dimensions that no step decides.
    """
    asked = {port.name: port for port in ports if port.is_input}
    if not part.is_first_stage:
        _check_hidden_states(asked.pop(HIDDEN_STATES_INPUT, None))
    dims = {**dims, "workspace": workspace_size(part.tp_size)}
    for port in asked.values():
        _check_input(port, dims)
    _check_output([port for port in ports if not port.is_input], part)
    if part.is_last_stage and ROW_ENDS not in asked:
        raise ConfigError(
            f"the engine does not ask for {ROW_ENDS}; its logits are of all tokens, not one row a sequence"
        )
    elsewhere = ([] if part.is_first_stage else [TOKENS]) + ([] if part.is_last_stage else [ROW_ENDS])
    if absent := [name for name in INPUTS if name not in (*asked, *OPTIONAL, *elsewhere)]:
        raise ConfigError(f"the engine does not ask for {absent[0]}, as one with a paged cache and packed input does")
    return [*asked]


def _check_output(outputs: Sequence[EnginePort], part: RankPart) -> None:
    name = LOGITS if part.is_last_stage else HIDDEN_STATES_OUTPUT
    dtypes: tuple[str, ...] = LOGITS_DTYPES if part.is_last_stage else HIDDEN_STATES_DTYPES
    if [port.name for port in outputs] != [name] or outputs[0].dtype not in dtypes:
        given = ", ".join(f"{port.name} {port.dtype}" for port in outputs)
        raise ConfigError(f"the engine must put out {name} in {' or '.join(dtypes)}; it puts out {given}")


def _check_hidden_states(port: EnginePort | None) -> None:
    if port is None:
        raise ConfigError(f"the engine does not ask for {HIDDEN_STATES_INPUT}, as one of a later stage does")
    if port.dtype not in HIDDEN_STATES_DTYPES or len(port.shape) != 2:
        dtypes = " or ".join(HIDDEN_STATES_DTYPES)
        declared = f"the engine asks for {port.name}, {port.dtype}{list(port.shape)}"
        raise ConfigError(f"{declared}; Jetway binds two dimensions of {dtypes}")


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
