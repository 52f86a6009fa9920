"""The models whose checkpoints Jetway converts itself: what else of their config.json the conversion depends on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jetway.builder.errors import CheckpointError
from jetway.builder.model_config import LARGEST, ModelConfig

from .rotary import Rotary, parse_rotary

OTHER_ENGINE = "Build this model with --engine openvino"
QWEN_SEQ_LENGTH = 8192  # what TensorRT-LLM takes where config.json has no seq_length


class _Family(NamedTuple):
    """What one architecture has, whatever its config.json says; None: config.json says it."""

    qwen_type: str | None = None  # TensorRT-LLM's name for it, where one class builds several
    has_qkv_bias: bool | None = None
    has_dense_bias: bool | None = None
    has_mlp_bias: bool | None = False
    has_qk_norm: bool = False


FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family(has_mlp_bias=None),
    "MistralForCausalLM": _Family(has_qkv_bias=False, has_dense_bias=False),
    "Qwen2ForCausalLM": _Family(qwen_type="qwen2", has_qkv_bias=True, has_dense_bias=False),
    "Qwen3ForCausalLM": _Family(qwen_type="qwen3", has_qk_norm=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A model with Llama's structure, as far as its tensors and TensorRT-LLM's config.json depend on it."""

    config: ModelConfig
    intermediate_size: int
    norm_epsilon: float
    rotary: Rotary
    qwen_type: str | None
    seq_length: int  # of Qwen alone
    has_qkv_bias: bool
    has_dense_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool


def parse(config: ModelConfig, fields: Mapping[str, Any], file: Path) -> Decoder:
    """What `fields`, a config.json, say of a model in FAMILIES. Raises CheckpointError; `file` is to blame."""
    family = FAMILIES[config.architecture]
    has_attention_bias = bool(fields.get("attention_bias", False))
    if family.has_qk_norm and has_attention_bias:
        problem = "attention_bias is true, which TensorRT-LLM's Qwen3 does not have"
        raise CheckpointError(file, problem, OTHER_ENGINE)
    if (activation := fields.get("hidden_act", "silu")) != "silu":
        raise CheckpointError(file, f"hidden_act is {activation!r}, not 'silu'", OTHER_ENGINE)
    intermediate_size = fields.get("intermediate_size")
    if type(intermediate_size) is not int or not 1 <= intermediate_size <= LARGEST:
        problem = f"intermediate_size is {intermediate_size!r}, not a positive integer"
        raise CheckpointError(file, problem, "Download the checkpoint again")
    return Decoder(
        config=config,
        intermediate_size=intermediate_size,
        norm_epsilon=fields.get("rms_norm_eps", 1e-6),
        rotary=parse_rotary(config, fields, file),
        qwen_type=family.qwen_type,
        seq_length=fields.get("seq_length", QWEN_SEQ_LENGTH),
        has_qkv_bias=_either(family.has_qkv_bias, has_attention_bias),
        has_dense_bias=_either(family.has_dense_bias, has_attention_bias),
        has_mlp_bias=_either(family.has_mlp_bias, bool(fields.get("mlp_bias", False))),
        has_qk_norm=family.has_qk_norm,
    )


def _either(fixed: bool | None, configured: bool) -> bool:
    return configured if fixed is None else fixed
