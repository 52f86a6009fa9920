"""Options that cannot be built are refused by name."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder.errors import OptionError
from jetway.builder.spec import BuildSpec
from jetway.builder.tensorrt.options import TensorRtOptions


def make_spec(**options: Any) -> BuildSpec:
    return BuildSpec(model_dir=Path("model"), output_dir=Path("engine"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "onnx"}, "--engine onnx: not supported by this version. Use openvino or tensorrt."),
        ({"dtype": "float16"}, "--dtype float16: openvino engines have float32. Use that, or another --engine."),
        (
            {"kv_cache_dtype": "fp8"},
            "--kv-cache-dtype fp8: openvino engines have f32, u8. Use one, or another --engine.",
        ),
        ({"quantization": "int4"}, "--quantization int4: openvino engines have int8. Use that, or another --engine."),
        (
            {"engine": "tensorrt", "dtype": "int8"},
            "--dtype int8: tensorrt engines have auto, float16, bfloat16, float32. Use one, or another --engine.",
        ),
        (
            {"engine": "tensorrt", "dtype": "auto", "kv_cache_dtype": "u8"},
            (
                "--kv-cache-dtype u8: tensorrt engines have auto, fp8, int8, float16, bfloat16, float32. Use one, or "
                "another --engine."
            ),
        ),
        (
            {"engine": "tensorrt", "dtype": "auto", "kv_cache_dtype": "auto", "tokens_per_block": 48},
            "--tokens-per-block 48: must be a power of two, such as 32.",
        ),
        (
            {"tensorrt": TensorRtOptions(tp_size=2)},
            "--tp-size: is of TensorRT engines only. Leave it out, or pass --engine tensorrt.",
        ),
        ({"tokens_per_block": 0}, "--tokens-per-block 0: must be at least 1."),
        (
            {"tokens_per_block": 64},
            "--tokens-per-block 64: OpenVINO's paged attention on CPU has blocks of 32 tokens. Leave the flag out.",
        ),
        ({"max_batch_size": 0}, "--max-batch-size 0: must be at least 1."),
        ({"max_num_tokens": -1}, "--max-num-tokens -1: must be at least 1."),
        ({"max_num_tokens": 1 << 31}, "--max-num-tokens 2147483648: must be at most 2147483647."),
        ({"max_seq_len": 0}, "--max-seq-len 0: must be at least 1."),
        (
            {"max_batch_size": 100, "max_num_tokens": 131},
            (
                "--max-num-tokens 131: a step of 100 decodes and one block of prefill needs 132. Raise it, or lower "
                "--max-batch-size."
            ),
        ),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        make_spec(**options)
    assert str(refused.value) == message


def test_smallest_step_is_accepted() -> None:
    spec = make_spec(max_batch_size=100, max_num_tokens=132)
    assert (spec.max_batch_size, spec.max_num_tokens, spec.max_seq_len) == (100, 132, None)
