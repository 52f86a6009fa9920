"""The model's configuration: the fields an engine depends on, checked before anything slow starts."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .architectures import ARCHITECTURES, OTHER, Architecture
from .errors import CheckpointError, OptionError
from .rope import ORIGINAL_POSITIONS, longrope_lengths

LARGEST = 2**31 - 1  # positions and counts are int32 in an engine


class LengthLimit(NamedTuple):
    """The longest sequence that is computed right, and the field that says so."""

    field: str
    tokens: int


SCALES = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rope_theta")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Named as in Llama's config.json, but for `head_size`, which is TensorRT-LLM's word."""

    architecture: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    max_position_embeddings: int
    length_limit: LengthLimit


def parse(fields: dict[str, Any], file: Path, *, others: bool = False) -> ModelConfig:
    """What `config.json` says, checked. `file` is where it stands, for messages. Raises CheckpointError.

    With `others`, also of architectures that are not in ARCHITECTURES.
    """
    name = _architecture(fields, file, others=others)
    _check_unquantized(fields, file)
    _check_scales(fields, file)
    sizes = _Sizes(fields, ARCHITECTURES.get(name, OTHER), file)
    num_heads, hidden_size = sizes.get("num_attention_heads"), sizes.get("hidden_size")
    num_kv_heads = sizes.get("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            file,
            f"num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}",
            "Download the checkpoint again",
        )
    max_positions = sizes.get("max_position_embeddings")
    limits = [LengthLimit(sizes.name("max_position_embeddings"), max_positions)]
    for length in longrope_lengths(name, fields, file):
        tokens = max_positions if length is None else positive(length, ORIGINAL_POSITIONS, file)
        limits.append(LengthLimit(ORIGINAL_POSITIONS, tokens))
    return ModelConfig(
        architecture=name,
        vocab_size=sizes.get("vocab_size"),
        hidden_size=hidden_size,
        num_hidden_layers=sizes.get("num_hidden_layers"),
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_size=sizes.get("head_dim", default=hidden_size // num_heads),
        max_position_embeddings=max_positions,
        length_limit=min(limits, key=lambda limit: limit.tokens),
    )


def resolve_max_seq_len(config: ModelConfig, asked: int | None, file: Path) -> int:
    """The longest sequence of the engine, in tokens. Raises OptionError for one that the model cannot compute."""
    limit = config.length_limit
    if asked is not None and asked > limit.tokens:
        raise OptionError(f"--max-seq-len {asked}: {file} has {limit.field} {limit.tokens}. Pass no more than that.")
    return asked or limit.tokens


def _architecture(fields: dict[str, Any], file: Path, *, others: bool) -> str:
    """The architecture's name, if engines of this very variant of it can be built."""
    names = fields.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    if not isinstance(name, str) or not (others or name in ARCHITECTURES):
        raise CheckpointError(
            file, f"architectures {names!r} is not supported", f"Supported are {', '.join(ARCHITECTURES)}"
        )
    for fixed in ARCHITECTURES.get(name, OTHER).fixed:
        value = fields.get(fixed.field, fixed.default)
        if bool(value) != fixed.is_true:
            raise CheckpointError(
                file, f"{fixed.field} is {value!r}, which paged attention cannot compute", "Build another model"
            )
    return name


def _check_unquantized(fields: dict[str, Any], file: Path) -> None:
    if quantization := fields.get("quantization_config"):
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise CheckpointError(
            file, f"quantization_config has quant_method {method!r}", "Use the unquantized checkpoint of this model"
        )


def _check_scales(fields: dict[str, Any], file: Path) -> None:
    """Numbers that every token goes through: zero or infinite ones build an engine whose answers mean nothing."""
    for name in SCALES:
        if (value := fields.get(name)) is not None:
            scale(value, name, file)


def scale(value: object, name: str, file: Path) -> float:
    """A factor of a config.json. Raises CheckpointError for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        problem = f"{name} is {value!r}, not a positive finite number"
        raise CheckpointError(file, problem, "Download the checkpoint again")
    return float(value)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The counts of a config.json by Llama's names."""

    fields: dict[str, Any]
    architecture: Architecture
    file: Path

    def name(self, field: str) -> str:
        return self.architecture.names.get(field, field)

    def get(self, field: str, default: int | None = None) -> int:
        """The field, or `default` where it is absent and that is what transformers takes. Raises CheckpointError."""
        value = self.fields.get(self.name(field))
        if value is None and field not in self.architecture.required:
            value = default
        return positive(value, self.name(field), self.file)


def positive(value: object, name: str, file: Path) -> int:
    """A count of a config.json. Raises CheckpointError for what is none."""
    if type(value) is not int or value < 1:
        raise CheckpointError(file, f"{name} is {value!r}, not a positive integer", "Download the checkpoint again")
    if value > LARGEST:
        raise CheckpointError(file, f"{name} is {value}, more than {LARGEST}", "Download the checkpoint again")
    return value
