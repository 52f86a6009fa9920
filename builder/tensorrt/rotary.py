"""A checkpoint's rotary embedding in TensorRT-LLM's words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jetway.builder.errors import CheckpointError
from jetway.builder.model_config import ModelConfig
from jetway.builder.rope import ORIGINAL_POSITIONS

DEFAULT_BASE = 10000.0
# "dynamic" scales beyond max_position_embeddings, where no engine goes.
UNSCALED = ("default", "dynamic")
SCALED = ("linear", "llama3", "yarn")
OF_THE_BASE = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
NOT_TRANSLATED = ("attention_factor", "mscale", "mscale_all_dim", "truncate")  # of yarn


class Rotary(NamedTuple):
    """`rotary_base` and `rotary_scaling` of TensorRT-LLM's config.json."""

    base: float
    scaling: dict[str, Any] | None


def parse_rotary(config: ModelConfig, fields: Mapping[str, Any], file: Path) -> Rotary:
    """What `fields`, a config.json of transformers 4 or 5, say. Raises CheckpointError for what is not translated."""
    rope = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    base = rope.get("rope_theta", fields.get("rope_theta", DEFAULT_BASE))
    factor = rope.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))
    if rope_type not in (*UNSCALED, *SCALED) or factor != 1.0:
        problem = f"has a rotary embedding of rope_type {rope_type!r} and partial_rotary_factor {factor}"
        raise CheckpointError(file, f"{problem}, which Jetway does not convert", "Build it with --engine openvino")
    if rope_type in UNSCALED:
        return Rotary(float(base), None)
    scaling = {name: value for name, value in rope.items() if name not in OF_THE_BASE and value is not None}
    if rope_type == "yarn":
        if unknown := [name for name in NOT_TRANSLATED if name in scaling]:
            problem = f"its yarn has {unknown[0]}, which Jetway does not convert"
            raise CheckpointError(file, problem, "Build it with --engine openvino")
        scaling.setdefault(ORIGINAL_POSITIONS, config.max_position_embeddings)
    # Versions of TensorRT-LLM read one name or the other.
    return Rotary(float(base), {"type": rope_type, "rope_type": rope_type, **scaling})
