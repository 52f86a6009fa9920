"""Rotary embeddings in a config.json: which of them an engine computes, and up to which length."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import CheckpointError

# An engine's frequencies are constants. "dynamic" changes them beyond max_position_embeddings, where no engine goes.
TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
ORIGINAL_POSITIONS = "original_max_position_embeddings"
PHI3 = "Phi3ForCausalLM"
PHI3_LONGROPE = ("su", "yarn")  # Phi-3's older names for it
PHI3_ORIGINAL_POSITIONS = 4096  # what transformers assumes where a Phi-3 does not say


def longrope_lengths(architecture: str, fields: dict[str, Any], file: Path) -> list[object]:
    """The lengths at which longrope changes its frequencies, as `fields` say; None where they do not.

    Raises CheckpointError for a rotary embedding that cannot be built.
    """
    return [
        fields.get(
            ORIGINAL_POSITIONS, PHI3_ORIGINAL_POSITIONS if architecture == PHI3 else rope.get(ORIGINAL_POSITIONS)
        )
        for name, rope in _ropes(fields)
        if _type(architecture, name, rope, file) == "longrope"
    ]


def _ropes(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every rotary embedding and the field it stands in; Gemma 3 has one for each kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):  # since transformers 5, and before
        rope = fields.get(name) or {}
        if isinstance(rope, dict) and rope and all(isinstance(value, dict) for value in rope.values()):
            yield from ((f"{name}.{layer_type}", value) for layer_type, value in rope.items())
        else:
            yield name, rope


def _type(architecture: str, name: str, rope: Any, file: Path) -> str:
    rope_type = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if architecture == PHI3 and rope_type in PHI3_LONGROPE:
        return "longrope"
    if rope_type not in TYPES or not isinstance(rope, dict):
        raise CheckpointError(
            file, f"{name} has rope_type {rope_type!r}, not supported", f"Supported are {', '.join(TYPES)}"
        )
    return str(rope_type)
