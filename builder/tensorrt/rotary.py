"""A checkpoint's rotary embedding in TensorRT-LLM's words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jetway.builder.errors import CheckpointError
from jetway.builder.model_config import ModelConfig, scale
from jetway.builder.rope import ORIGINAL_POSITIONS

DEFAULT_BASE = 10000.0
# "dynamic" scales beyond max_position_embeddings, where no engine goes.
UNSCALED = ("default", "dynamic")
LOW, HIGH = "low_freq_factor", "high_freq_factor"
REQUIRED = {"linear": ("factor",), "llama3": ("factor", LOW, HIGH, ORIGINAL_POSITIONS), "yarn": ("factor",)}
OPTIONAL = {"yarn": (ORIGINAL_POSITIONS, "beta_fast", "beta_slow")}
NOT_TRANSLATED = ("attention_factor", "mscale", "mscale_all_dim", "truncate")  # of yarn
OTHER_ENGINE = "Build it with --engine openvino"


class Rotary(NamedTuple):
    """`rotary_base` and `rotary_scaling` of TensorRT-LLM's config.json."""

    base: float
    scaling: dict[str, Any] | None


def parse_rotary(config: ModelConfig, fields: Mapping[str, Any], file: Path) -> Rotary:
    """What `fields`, a config.json of transformers 4 or 5, say. Raises CheckpointError for what is not translated."""
    rope = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    factor = rope.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))
    if rope_type not in (*UNSCALED, *REQUIRED) or factor != 1.0:
        problem = f"has a rotary embedding of rope_type {rope_type!r} and partial_rotary_factor {factor}"
        raise CheckpointError(file, f"{problem}, which Jetway does not convert", OTHER_ENGINE)
    for name, value in rope.items():
        if isinstance(value, dict):
            problem = f"has a rotary embedding for {name}, and another for other layers"
            raise CheckpointError(file, f"{problem}, which Jetway does not convert", OTHER_ENGINE)
    base = scale(rope.get("rope_theta", fields.get("rope_theta", DEFAULT_BASE)), "rope_theta", file)
    return Rotary(base, None if rope_type in UNSCALED else _scaling(rope_type, rope, config, file))


def _scaling(rope_type: str, rope: Mapping[str, Any], config: ModelConfig, file: Path) -> dict[str, Any]:
    if rope_type == "yarn":
        for name in NOT_TRANSLATED:
            if rope.get(name) is not None:
                raise CheckpointError(file, f"its yarn has {name}, which Jetway does not convert", OTHER_ENGINE)
    given = [name for name in OPTIONAL.get(rope_type, ()) if rope.get(name) is not None]
    for name in (*REQUIRED[rope_type], *given):
        scale(rope.get(name), f"{rope_type}'s {name}", file)
    scaling = {name: rope[name] for name in (*REQUIRED[rope_type], *given)}
    if rope_type == "llama3" and scaling[LOW] >= scaling[HIGH]:
        problem = f"llama3's {LOW} is {scaling[LOW]}, not below its {HIGH} {scaling[HIGH]}"
        raise CheckpointError(file, problem, "Download the checkpoint again")
    if rope_type == "yarn":
        scaling.setdefault(ORIGINAL_POSITIONS, config.max_position_embeddings)
    # Versions of TensorRT-LLM read one name or the other.
    return {"type": rope_type, "rope_type": rope_type, **scaling}
