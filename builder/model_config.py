"""The model's configuration: the fields an engine depends on, checked before anything slow starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CheckpointError, OptionError

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# Rotary embeddings whose frequencies are constants; "dynamic" and "longrope" change with the sequence's length.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
SLIDING_WINDOW = 4096  # what transformers assumes where a config.json that uses a window does not say how wide


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Named as in Hugging Face's config.json, but for `head_size`, which is TensorRT-LLM's word."""

    architecture: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    max_position_embeddings: int
    sliding_window: int | None  # a token sees at most so many; None: all before it


def parse(fields: dict[str, Any], file: Path) -> ModelConfig:
    """What `config.json` says, checked. `file` is where it stands, for messages. Raises CheckpointError."""
    architecture = _architecture(fields, file)
    _check_rope(fields, file)
    _check_unquantized(fields, file)
    num_heads = _positive(fields, "num_attention_heads", file)
    hidden_size = _positive(fields, "hidden_size", file)
    num_kv_heads = _positive(fields, "num_key_value_heads", file, default=num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            file,
            f"num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}",
            "Download the checkpoint again",
        )
    return ModelConfig(
        architecture=architecture,
        vocab_size=_positive(fields, "vocab_size", file),
        hidden_size=hidden_size,
        num_hidden_layers=_positive(fields, "num_hidden_layers", file),
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_size=_positive(fields, "head_dim", file, default=hidden_size // num_heads),
        max_position_embeddings=_positive(fields, "max_position_embeddings", file),
        sliding_window=_sliding_window(architecture, fields, file),
    )


def resolve_max_seq_len(config: ModelConfig, asked: int | None, file: Path) -> int:
    """The longest sequence of the engine, in tokens. Raises OptionError for one that the model cannot compute."""
    max_seq_len = asked or config.max_position_embeddings
    if max_seq_len > config.max_position_embeddings:
        raise OptionError(
            f"--max-seq-len {max_seq_len}: {file} has max_position_embeddings {config.max_position_embeddings}. "
            "Pass no more than that."
        )
    # The exported mask lets every token see all before it, which is the same only inside the window.
    if config.sliding_window is not None and max_seq_len > config.sliding_window:
        raise OptionError(
            f"--max-seq-len {max_seq_len}: {file} has sliding_window {config.sliding_window}, and engines without a "
            f"window are built. Pass --max-seq-len {config.sliding_window}."
        )
    return max_seq_len


def _architecture(fields: dict[str, Any], file: Path) -> str:
    names = fields.get("architectures")
    if isinstance(names, list) and len(names) == 1 and names[0] in ARCHITECTURES:
        return str(names[0])
    raise CheckpointError(
        file, f"architectures {names!r} is not supported", f"Supported are {', '.join(ARCHITECTURES)}"
    )


def _check_rope(fields: dict[str, Any], file: Path) -> None:
    for name in ("rope_parameters", "rope_scaling"):  # since transformers 5, and before
        rope = fields.get(name) or {}
        rope_type = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
        if rope_type not in ROPE_TYPES:
            raise CheckpointError(
                file, f"{name} has rope_type {rope_type!r}, not supported", f"Supported are {', '.join(ROPE_TYPES)}"
            )


def _check_unquantized(fields: dict[str, Any], file: Path) -> None:
    if quantization := fields.get("quantization_config"):
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise CheckpointError(
            file, f"quantization_config has quant_method {method!r}", "Use the unquantized checkpoint of this model"
        )


def _sliding_window(architecture: str, fields: dict[str, Any], file: Path) -> int | None:
    has_window = architecture == "MistralForCausalLM" or fields.get("use_sliding_window")
    if not has_window or fields.get("sliding_window", SLIDING_WINDOW) is None:
        return None
    return _positive(fields, "sliding_window", file, default=SLIDING_WINDOW)


def _positive(fields: dict[str, Any], name: str, file: Path, default: int | None = None) -> int:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise CheckpointError(file, f"{name} is {value!r}, not a positive integer", "Download the checkpoint again")
    return value
