"""What cannot be built together is refused before anything starts, with what to do."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder.errors import OptionError
from jetway.builder.tensorrt import exclusions
from tests.builder.tensorrt.conversions import make_spec

PAGED_CONTEXT = "paged-context FMHA, without which Jetway does not serve an engine"
ELSEWHERE = "or build it for another server: --convert-only, then trtllm-build."


def check(max_seq_len: int, options: dict[str, Any]) -> None:
    settled = {"dtype": "float16", "kv_cache_dtype": options.get("dtype", "float16")} | options
    spec = make_spec(Path("model"), **settled)
    exclusions.check_conversion(spec)
    exclusions.check_build(spec, max_seq_len)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kv_cache_dtype": "int8", "calib_dataset": Path("texts")},
            (f"--kv-cache-dtype int8: excludes {PAGED_CONTEXT}. Use auto, or fp8 with --quantization fp8, {ELSEWHERE}"),
        ),
        (
            {"kv_cache_dtype": "fp8"},
            (
                f"--kv-cache-dtype fp8: needs fp8 weights for {PAGED_CONTEXT}. Pass --quantization fp8, use auto, "
                f"{ELSEWHERE}"
            ),
        ),
        (
            {"dtype": "float32"},
            f"--dtype float32: has no {PAGED_CONTEXT}. Use float16 or bfloat16, {ELSEWHERE}",
        ),
        (
            {"kv_cache_dtype": "bfloat16"},
            ("--kv-cache-dtype bfloat16: a cache that is not quantized has the model's --dtype float16. Use auto."),
        ),
        (
            {"quantization": "int8", "dtype": "float32"},
            "--quantization int8: its kernels compute in 16 bits. Pass --dtype float16 or bfloat16.",
        ),
        (
            {"quantization": "int8", "calib_dataset": Path("texts")},
            "--calib-dataset: only scales of fp8 weights and of an int8 cache are measured. Leave it out.",
        ),
        (
            {"quantization": "fp8"},
            "--quantization fp8: its scales are measured on texts. Name a data set on disk: --calib-dataset DIR.",
        ),
        (
            {"kv_cache_dtype": "int8"},
            "--kv-cache-dtype int8: its scales are measured on texts. Name a data set on disk: --calib-dataset DIR.",
        ),
        (
            {"gemm_plugin": "fp8"},
            "--gemm-plugin fp8: multiplies fp8 weights only. Pass --quantization fp8, or --gemm-plugin auto.",
        ),
        (
            {"max_batch_size": 1 << 24, "max_num_tokens": 1 << 25},
            (
                "--max-batch-size 16777216: with 128 blocks a sequence its block table exceeds 32 bits. Lower it, or "
                "raise --tokens-per-block."
            ),
        ),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        check(4096, options)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quantization": "int4", "dtype": "bfloat16"},
        {"quantization": "fp8", "kv_cache_dtype": "fp8", "gemm_plugin": "fp8", "calib_dataset": Path("texts")},
        {"max_num_tokens": 4095},
        {"max_batch_size": 1 << 16, "max_num_tokens": 1 << 17},
    ],
)
def test_accepted(options: dict[str, Any]) -> None:
    check(4096, options)
