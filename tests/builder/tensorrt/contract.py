"""The arguments of TensorRT-LLM 1.2.1's `BuildConfig` and `PluginConfig`, from contracts/tensorrt-llm.md 2.1 and 2.2.

Name -> what a value may be. Written down from the contract, apart from the builder's own table.
"""

from collections.abc import Mapping
from typing import Any

Allowed = tuple[Any, ...]

NONE = type(None)
FLOATS = ("float16", "bfloat16", "float32")
PLUGIN = ("auto", *FLOATS, None)

BUILD_CONFIG: Mapping[str, Allowed] = {
    "max_input_len": (int,),
    "max_seq_len": (int, NONE),
    "opt_batch_size": (int,),
    "max_batch_size": (int,),
    "max_beam_width": (int,),
    "max_num_tokens": (int,),
    "opt_num_tokens": (int, NONE),
    "max_prompt_embedding_table_size": (int,),
    "kv_cache_type": ("paged", "continuous", "disabled", None),
    "gather_context_logits": (bool,),
    "gather_generation_logits": (bool,),
    "strongly_typed": (bool,),
    "force_num_profiles": (int, NONE),
    "profiling_verbosity": ("layer_names_only", "detailed", "none"),
    "enable_debug_output": (bool,),
    "max_draft_len": (int,),
    "use_refit": (bool,),
    "input_timing_cache": (str, NONE),
    "output_timing_cache": (str,),
    "weight_sparsity": (bool,),
    "weight_streaming": (bool,),
    "plugin_config": (dict,),
    "use_strip_plan": (bool,),
    "max_encoder_input_len": (int,),
    "dry_run": (bool,),
    "visualize_network": (str, NONE),
    "monitor_memory": (bool,),
    "use_mrope": (bool,),
}
PLUGIN_CONFIG: Mapping[str, Allowed] = {
    "dtype": FLOATS,
    "bert_attention_plugin": PLUGIN,
    "gpt_attention_plugin": PLUGIN,
    "gemm_plugin": (*PLUGIN, "int32", "fp8", "nvfp4"),
    "gemm_swiglu_plugin": ("fp8", None),
    "fp8_rowwise_gemm_plugin": PLUGIN,
    "nccl_plugin": PLUGIN,
    "lora_plugin": PLUGIN,
    "weight_only_groupwise_quant_matmul_plugin": PLUGIN,
    "weight_only_quant_matmul_plugin": PLUGIN,
    "smooth_quant_plugins": (bool,),
    "moe_plugin": PLUGIN,
    "context_fmha": (bool,),
    "paged_kv_cache": (bool, NONE),
    "remove_input_padding": (bool,),
    "norm_quant_fusion": (bool,),
    "reduce_fusion": (bool,),
    "user_buffer": (bool,),
    "tokens_per_block": (int,),
    "use_paged_context_fmha": (bool,),
    "use_fp8_context_fmha": (bool,),
    "multiple_profiles": (bool,),
    "paged_state": (bool,),
    "streamingllm": (bool,),
    "manage_weights": (bool,),
    "use_fused_mlp": (bool,),
    "pp_reduce_scatter": (bool,),
}


def violations(arguments: Mapping[str, Any], table: Mapping[str, Allowed]) -> list[str]:
    """The names that the table has not, and those whose values it does not allow."""
    return [name for name, value in arguments.items() if name not in table or not _allows(table[name], value)]


def _allows(allowed: Allowed, value: object) -> bool:
    types = [item for item in allowed if isinstance(item, type)]
    return type(value) in types or any(value == item for item in allowed if not isinstance(item, type))
