"""The models whose checkpoints Jetway converts itself: what else of their config.json the conversion depends on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jetway.builder.errors import CheckpointError
from jetway.builder.model_config import ModelConfig, positive, scale

from .rotary import Rotary, parse_rotary

AGAIN = "Download the checkpoint again"
OTHER_ENGINE = "Build this model with --engine openvino"
DEFAULT_EPSILON = 1e-6  # what transformers takes where config.json has no rms_norm_eps
QWEN_SEQ_LENGTH = 8192  # what TensorRT-LLM takes where config.json has no seq_length


class _Family(NamedTuple):
    """What one architecture has, whatever its config.json says; None: config.json says it."""

    model_type: str  # by which transformers chooses the model
    qwen_type: str | None = None  # TensorRT-LLM's name for it, where one class builds several
    has_qkv_bias: bool | None = None
    has_dense_bias: bool | None = None
    has_mlp_bias: bool | None = False
    has_qk_norm: bool = False


FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family("llama", has_mlp_bias=None),
    "MistralForCausalLM": _Family("mistral", has_qkv_bias=False, has_dense_bias=False),
    "Qwen2ForCausalLM": _Family("qwen2", qwen_type="qwen2", has_qkv_bias=True, has_dense_bias=False),
    "Qwen3ForCausalLM": _Family("qwen3", qwen_type="qwen3", has_qk_norm=True),
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
    has_tied_head: bool  # the output head is the embedding


def parse(config: ModelConfig, fields: Mapping[str, Any], file: Path) -> Decoder:
    """What `fields`, a config.json, say of a model in FAMILIES. Raises CheckpointError; `file` is to blame."""
    family = FAMILIES[config.architecture]
    if (model_type := fields.get("model_type")) != family.model_type:
        problem = f"model_type is {model_type!r}, but {config.architecture} is of {family.model_type!r}"
        raise CheckpointError(file, problem, AGAIN)
    has_attention_bias = bool(fields.get("attention_bias", False))
    if family.has_qk_norm and has_attention_bias:
        problem = "attention_bias is true, which TensorRT-LLM's Qwen3 does not have"
        raise CheckpointError(file, problem, OTHER_ENGINE)
    if (activation := fields.get("hidden_act", "silu")) != "silu":
        raise CheckpointError(file, f"hidden_act is {activation!r}, not 'silu'", OTHER_ENGINE)
    return Decoder(
        config=config,
        intermediate_size=positive(fields.get("intermediate_size"), "intermediate_size", file),
        norm_epsilon=scale(fields.get("rms_norm_eps", DEFAULT_EPSILON), "rms_norm_eps", file),
        rotary=parse_rotary(config, fields, file),
        qwen_type=family.qwen_type,
        seq_length=positive(fields.get("seq_length", QWEN_SEQ_LENGTH), "seq_length", file),
        has_qkv_bias=_either(family.has_qkv_bias, has_attention_bias),
        has_dense_bias=_either(family.has_dense_bias, has_attention_bias),
        has_mlp_bias=_either(family.has_mlp_bias, bool(fields.get("mlp_bias", False))),
        has_qk_norm=family.has_qk_norm,
        has_tied_head=fields.get("tie_word_embeddings") is True,
    )


def _either(fixed: bool | None, configured: bool) -> bool:
    return configured if fixed is None else fixed
