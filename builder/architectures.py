"""The architectures that become engines, and what each one's config.json says in its own way.

All are decoders whose attention OpenVINO's paged attention can compute: causal, over all earlier tokens or a window of
them, and without a function between the scores and the softmax.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Fixed(NamedTuple):
    """A field of config.json that an engine is right for only if it is true (or only if it is false, or absent)."""

    field: str
    is_true: bool
    default: object  # what transformers takes where config.json has no such field


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How one architecture's config.json differs from Llama's."""

    names: Mapping[str, str]  # Llama's field -> its name here; absent: the same
    required: frozenset[str]  # fields that transformers would not derive from the others but take from a famous model
    has_window: bool  # some or all layers may see only the last `sliding_window` tokens
    fixed: tuple[Fixed, ...]


def _architecture(
    *,
    names: Mapping[str, str] | None = None,
    required: str = "",
    has_window: bool = False,
    fixed: tuple[Fixed, ...] = (),
) -> Architecture:
    return Architecture(
        names=names or {}, required=frozenset(required.split()), has_window=has_window, fixed=(*_DECODER, *fixed)
    )


_DECODER = (
    Fixed("is_causal", is_true=True, default=True),
    Fixed("is_encoder_decoder", is_true=False, default=False),
    Fixed("add_cross_attention", is_true=False, default=False),
    Fixed("use_bidirectional_attention", is_true=False, default=False),
)
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
_SOFTCAPPING = Fixed("attn_logit_softcapping", is_true=False, default=50.0)  # a tanh before the softmax

ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": _architecture(),
    "MistralForCausalLM": _architecture(required="num_key_value_heads", has_window=True),
    "Qwen2ForCausalLM": _architecture(required="num_key_value_heads", has_window=True),
    "Qwen3ForCausalLM": _architecture(required="num_key_value_heads head_dim", has_window=True),
    "GPT2LMHeadModel": _architecture(names=_GPT2_NAMES),
    "GemmaForCausalLM": _architecture(required="num_key_value_heads head_dim"),
    "Gemma2ForCausalLM": _architecture(required="num_key_value_heads head_dim", has_window=True, fixed=(_SOFTCAPPING,)),
    "Gemma3ForCausalLM": _architecture(required="num_key_value_heads head_dim", has_window=True),
    "PhiForCausalLM": _architecture(),
    "Phi3ForCausalLM": _architecture(has_window=True),
}
OTHER = _architecture(has_window=True)  # what TensorRT-LLM may know, as far as its config.json has Llama's names
