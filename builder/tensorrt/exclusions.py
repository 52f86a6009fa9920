"""What TensorRT-LLM cannot build together, or would quietly turn into what Jetway cannot serve.

contracts/tensorrt-llm.md, 2.2 and 3.3.
"""

from collections.abc import Iterator

from jetway.builder.errors import OptionError
from jetway.builder.spec import BuildSpec

from .build_config import WEIGHT_ONLY
from .served import is_block_table_indexable

PAGED_CONTEXT = "paged-context FMHA, without which Jetway does not serve an engine"
ELSEWHERE = "or build it for another server: --convert-only, then trtllm-build"


def is_calibrated(spec: BuildSpec) -> bool:
    """Whether scales are measured, which TensorRT-LLM does on a GPU."""
    return spec.quantization == "fp8" or spec.kv_cache_dtype == "int8"


def check_conversion(spec: BuildSpec) -> None:
    """Raise OptionError for weights that cannot be made. `spec` leaves nothing to `auto`."""
    _raise_first(_of_weights(spec))


def check_build(spec: BuildSpec, max_seq_len: int) -> None:
    """Raise OptionError for an engine that cannot be built, not as it is asked for, or not to be served."""
    _raise_first(_of_paged_context(spec))
    _raise_first(_of_engine(spec, max_seq_len))


def check_data(spec: BuildSpec) -> None:
    """Raise OptionError for texts that are not here, where scales are to be measured."""
    texts = spec.tensorrt.calib_dataset
    if texts is not None and not texts.exists():
        raise OptionError(f"--calib-dataset {texts}: does not exist. Name a data set on disk.")


def _raise_first(problems: Iterator[str]) -> None:
    for problem in problems:
        raise OptionError(problem)


def _of_weights(spec: BuildSpec) -> Iterator[str]:
    dtype, quantization, kv = spec.dtype, spec.quantization, spec.kv_cache_dtype
    if kv not in (dtype, "fp8", "int8"):
        yield f"--kv-cache-dtype {kv}: a cache that is not quantized has the model's --dtype {dtype}. Use auto."
    if quantization in WEIGHT_ONLY and dtype == "float32":
        yield f"--quantization {quantization}: its kernels compute in 16 bits. Pass --dtype float16 or bfloat16."
    if spec.tensorrt.calib_dataset is not None and not is_calibrated(spec):
        yield "--calib-dataset: only scales of fp8 weights and of an int8 cache are measured. Leave it out."
    if is_calibrated(spec) and spec.tensorrt.calib_dataset is None:
        what = "--quantization fp8" if quantization == "fp8" else "--kv-cache-dtype int8"
        yield f"{what}: its scales are measured on texts. Name a data set on disk: --calib-dataset DIR."


def _of_engine(spec: BuildSpec, max_seq_len: int) -> Iterator[str]:
    if spec.tensorrt.gemm_plugin == "fp8" and spec.quantization != "fp8":
        yield "--gemm-plugin fp8: multiplies fp8 weights only. Pass --quantization fp8, or --gemm-plugin auto."
    num_blocks = -(-max_seq_len // spec.tokens_per_block)
    if not is_block_table_indexable(spec.max_batch_size, num_blocks):
        yield (
            f"--max-batch-size {spec.max_batch_size}: with {num_blocks} blocks a sequence its block table exceeds "
            "32 bits. Lower it, or raise --tokens-per-block."
        )


def _of_paged_context(spec: BuildSpec) -> Iterator[str]:
    if spec.kv_cache_dtype == "int8":
        yield f"--kv-cache-dtype int8: excludes {PAGED_CONTEXT}. Use auto, or fp8 with --quantization fp8, {ELSEWHERE}."
    if spec.kv_cache_dtype == "fp8" and spec.quantization != "fp8":
        yield f"--kv-cache-dtype fp8: needs fp8 weights for {PAGED_CONTEXT}. Pass --quantization fp8, use auto, {ELSEWHERE}."
    if spec.dtype == "float32":
        yield f"--dtype float32: has no {PAGED_CONTEXT}. Use float16 or bfloat16, {ELSEWHERE}."
