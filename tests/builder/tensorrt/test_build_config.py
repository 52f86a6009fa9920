"""Every argument is one that TensorRT-LLM 1.2.1 has, of a type that it takes, and says what was asked."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder.tensorrt.build_config import build_config
from tests.builder.tensorrt import contract
from tests.builder.tensorrt.conversions import make_spec

CACHE = Path("logs/timing.cache")


def translate(**options: Any) -> dict[str, Any]:
    settled = {"dtype": "float16", "kv_cache_dtype": "float16"} | options
    return build_config(make_spec(Path("model"), **settled), 4096, CACHE)


VARIANTS = [
    {},
    {"tp_size": 2, "pp_size": 2},
    {"quantization": "int8", "dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
    {"quantization": "int4"},
    {"quantization": "fp8", "kv_cache_dtype": "fp8", "gemm_plugin": "fp8"},
    {"gemm_plugin": "disable", "multiple_profiles": True, "tokens_per_block": 64},
    {"dtype": "float32", "kv_cache_dtype": "float32"},
]


@pytest.mark.parametrize("options", VARIANTS)
def test_every_argument_is_in_the_contract(options: dict[str, Any]) -> None:
    arguments = translate(**options)
    assert contract.violations(arguments, contract.BUILD_CONFIG) == []
    assert contract.violations(arguments["plugin_config"], contract.PLUGIN_CONFIG) == []


def test_the_table_refuses_what_it_should() -> None:
    assert contract.violations({"max_batch": 1, "max_seq_len": True}, contract.BUILD_CONFIG) == [
        "max_batch",
        "max_seq_len",
    ]
    assert contract.violations({"gemm_plugin": "enable"}, contract.PLUGIN_CONFIG) == ["gemm_plugin"]


def test_the_whole_of_a_plain_build() -> None:
    assert translate(max_batch_size=8, max_num_tokens=512) == {
        "max_batch_size": 8,
        "max_num_tokens": 512,
        "max_seq_len": 4096,
        "max_input_len": 4096,
        "max_beam_width": 1,
        "kv_cache_type": "paged",
        "gather_context_logits": False,
        "gather_generation_logits": False,
        "strongly_typed": True,
        "profiling_verbosity": "layer_names_only",
        "use_refit": False,
        "use_strip_plan": False,
        "weight_streaming": False,
        "output_timing_cache": "logs/timing.cache",
        "plugin_config": {
            "dtype": "float16",
            "gpt_attention_plugin": "auto",
            "gemm_plugin": "auto",
            "nccl_plugin": None,
            "weight_only_quant_matmul_plugin": None,
            "context_fmha": True,
            "paged_kv_cache": True,
            "remove_input_padding": True,
            "tokens_per_block": 32,
            "use_paged_context_fmha": True,
            "use_fp8_context_fmha": False,
            "multiple_profiles": False,
            "manage_weights": False,
            "streamingllm": False,
        },
    }


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"tp_size": 2}, {"nccl_plugin": "auto"}),
        ({"pp_size": 2}, {"nccl_plugin": "auto"}),
        ({"quantization": "int8"}, {"weight_only_quant_matmul_plugin": "float16"}),
        ({"quantization": "int4"}, {"weight_only_quant_matmul_plugin": "float16"}),
        ({"gemm_plugin": "disable"}, {"gemm_plugin": None}),
        ({"multiple_profiles": True}, {"multiple_profiles": True}),
        ({"tokens_per_block": 128}, {"tokens_per_block": 128}),
        ({"quantization": "fp8"}, {}),
        ({"quantization": "fp8", "kv_cache_dtype": "fp8"}, {"use_fp8_context_fmha": True}),
    ],
)
def test_an_option_changes_its_plugins_and_nothing_else(options: dict[str, Any], changed: dict[str, Any]) -> None:
    plain = translate()
    assert translate(**options) == plain | {"plugin_config": plain["plugin_config"] | changed}
