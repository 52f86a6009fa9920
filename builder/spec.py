"""What to build: the options of `build-engine`, checked as far as they can be without a checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from .errors import OptionError
from .manifest import KV_CACHE_DTYPES, QUANTIZATIONS

ENGINE = "openvino"
DTYPE = "float32"
KV_CACHE_DTYPE = "f32"
TOKENS_PER_BLOCK = 32  # the only block size of OpenVINO's paged attention on CPU

MAX_BATCH_SIZE = 64
MAX_NUM_TOKENS = 512  # the best budget for a 135M model on two cores; 128 costs 16 % (contracts/openvino.md)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """One build. Names follow `trtllm-build`; sizes count tokens and sequences. Raises OptionError."""

    model_dir: Path
    output_dir: Path
    engine: str = ENGINE
    dtype: str = DTYPE
    quantization: str | None = None  # of the weights; None: they stay in `dtype`
    kv_cache_dtype: str = KV_CACHE_DTYPE
    max_batch_size: int = MAX_BATCH_SIZE
    max_num_tokens: int = MAX_NUM_TOKENS
    max_seq_len: int | None = None  # None: the longest that the checkpoint's config allows
    tokens_per_block: int = TOKENS_PER_BLOCK

    def __post_init__(self) -> None:
        if self.engine == "tensorrt":
            raise OptionError("--engine tensorrt: this version builds OpenVINO engines only. Use --engine openvino.")
        _require("--engine", self.engine, (ENGINE,))
        _require("--dtype", self.dtype, (DTYPE,))
        _require("--kv-cache-dtype", self.kv_cache_dtype, KV_CACHE_DTYPES)
        if self.quantization is not None:
            _require("--quantization", self.quantization, QUANTIZATIONS)
        if self.tokens_per_block != TOKENS_PER_BLOCK:
            raise OptionError(
                f"--tokens-per-block {self.tokens_per_block}: OpenVINO's paged attention on CPU has blocks of "
                f"{TOKENS_PER_BLOCK} tokens. Leave the flag out."
            )
        _require_positive("--max-batch-size", self.max_batch_size)
        _require_positive("--max-num-tokens", self.max_num_tokens)
        if self.max_seq_len is not None:
            _require_positive("--max-seq-len", self.max_seq_len)
        # The scheduler keeps one block of every step's budget for a waiting prefill.
        least_tokens = self.max_batch_size + self.tokens_per_block
        if self.max_num_tokens < least_tokens:
            raise OptionError(
                f"--max-num-tokens {self.max_num_tokens}: a step of {self.max_batch_size} decodes and one block of "
                f"prefill needs {least_tokens}. Raise it, or lower --max-batch-size."
            )


def _require(flag: str, value: str, supported: tuple[str, ...]) -> None:
    if value not in supported:
        raise OptionError(f"{flag} {value}: not supported by this version. Use {' or '.join(supported)}.")


def _require_positive(flag: str, value: int) -> None:
    if value < 1:
        raise OptionError(f"{flag} {value}: must be at least 1.")
