"""The build in the words of TensorRT-LLM 1.2.1: `BuildConfig` and `PluginConfig` (contracts/tensorrt-llm.md, 2.1, 2.2)."""

from pathlib import Path
from typing import Any

from jetway.builder.spec import BuildSpec

WEIGHT_ONLY = ("int8", "int4")


def build_config(spec: BuildSpec, max_seq_len: int, timing_cache: Path) -> dict[str, Any]:
    """The keyword arguments of `BuildConfig`; those of `PluginConfig` stand under `plugin_config`.

    Whatever Jetway depends on is said, also where it is the default: an engine in batches that change from step to
    step, whose weights are inside it.
    """
    return {
        "max_batch_size": spec.max_batch_size,
        "max_num_tokens": spec.max_num_tokens,
        "max_seq_len": max_seq_len,  # left out, it would be deduced, and may exceed the RoPE table
        "max_input_len": max_seq_len,
        "max_beam_width": 1,
        "kv_cache_type": "paged",
        "gather_context_logits": False,
        "gather_generation_logits": False,
        "strongly_typed": True,
        "profiling_verbosity": "layer_names_only",
        "use_refit": False,
        "use_strip_plan": False,
        "weight_streaming": False,
        "output_timing_cache": str(timing_cache),  # else it lands in the current directory
        "plugin_config": plugin_config(spec),
    }


def plugin_config(spec: BuildSpec) -> dict[str, Any]:
    """The keyword arguments of `PluginConfig`. It ignores names that it does not know."""
    options, world_size = spec.tensorrt, spec.tensorrt.tp_size * spec.tensorrt.pp_size
    return {
        "dtype": spec.dtype,
        "gpt_attention_plugin": "auto",
        "gemm_plugin": None if options.gemm_plugin == "disable" else options.gemm_plugin,
        "nccl_plugin": "auto" if world_size > 1 else None,
        "weight_only_quant_matmul_plugin": spec.dtype if spec.quantization in WEIGHT_ONLY else None,
        "context_fmha": True,
        "paged_kv_cache": True,
        "remove_input_padding": True,
        "tokens_per_block": spec.tokens_per_block,
        "use_paged_context_fmha": True,  # prefill in chunks, and reuse of prefixes
        "use_fp8_context_fmha": spec.quantization == spec.kv_cache_dtype == "fp8",  # the paged kind reads an fp8 cache
        "multiple_profiles": options.multiple_profiles,
        "manage_weights": False,
        "streamingllm": False,
    }
