"""`config.json` of a TensorRT-LLM checkpoint (contracts/tensorrt-llm.md, 2.4)."""

from typing import Any

from jetway.builder.spec import BuildSpec

from .decoder import Decoder

QUANT_ALGOS = {None: None, "int8": "W8A16", "int4": "W4A16", "fp8": "FP8"}  # by --quantization
KV_QUANT_ALGOS = {"fp8": "FP8", "int8": "INT8"}  # by --kv-cache-dtype; the others are no quantization
LOGITS_DTYPE = "float32"


def checkpoint_config(decoder: Decoder, spec: BuildSpec) -> dict[str, Any]:
    """Every field that TensorRT-LLM needs, and those whose defaults are of other models."""
    config = decoder.config
    fields = {
        "architecture": config.architecture,
        "dtype": spec.dtype,
        "logits_dtype": LOGITS_DTYPE,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "hidden_size": config.hidden_size,
        "intermediate_size": decoder.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_size": config.head_size,
        "qk_layernorm": decoder.has_qk_norm,
        "hidden_act": "silu",
        "norm_epsilon": decoder.norm_epsilon,
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": decoder.rotary.base,
        "rotary_scaling": decoder.rotary.scaling,
        "attn_bias": decoder.has_qkv_bias,
        "mlp_bias": decoder.has_mlp_bias,
        "use_parallel_embedding": False,
        "embedding_sharding_dim": 0,
        "share_embedding_table": False,
        "mapping": mapping(spec),
        "quantization": quantization(spec),
    }
    if decoder.qwen_type is not None:
        fields |= {"qwen_type": decoder.qwen_type, "seq_length": decoder.seq_length}
    return fields


def mapping(spec: BuildSpec) -> dict[str, int]:
    """How the model is split."""
    options = spec.tensorrt
    world_size = options.tp_size * options.pp_size
    return {"world_size": world_size, "tp_size": options.tp_size, "pp_size": options.pp_size}


def quantization(spec: BuildSpec) -> dict[str, Any]:
    """What is quantized: weight-only algorithms by the build, as it loads the plain weights.

    Names no excluded modules: TensorRT-LLM's own list then leaves out both the head and the embedding.
    """
    return {
        "quant_algo": QUANT_ALGOS[spec.quantization],
        "kv_cache_quant_algo": KV_QUANT_ALGOS.get(spec.kv_cache_dtype),
    }
