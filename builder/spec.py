"""What to build: the options of `build-engine`, checked as far as they can be without a checkpoint."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from .errors import OptionError
from .tensorrt.options import TensorRtOptions
from .tensorrt.served import LARGEST_INT32, is_power_of_two

ENGINE = "openvino"
TOKENS_PER_BLOCK = 32  # the only block size of OpenVINO's paged attention on CPU


class Offer(NamedTuple):
    """What one kind of engine can be built of; the first of each is the default."""

    dtypes: tuple[str, ...]
    quantizations: tuple[str, ...]
    kv_cache_dtypes: tuple[str, ...]
    max_batch_size: int
    max_num_tokens: int


OFFERS = {
    # The best token budget for a 135M model on two cores; 128 costs 16 % (contracts/openvino.md).
    ENGINE: Offer(("float32",), ("int8",), ("f32", "u8"), 64, 512),
    "tensorrt": Offer(
        ("auto", "float16", "bfloat16", "float32"),
        ("int8", "int4", "fp8"),
        ("auto", "fp8", "int8", "float16", "bfloat16", "float32"),
        256,
        8192,
    ),
}
_OPENVINO = OFFERS[ENGINE]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """One build. Names follow `trtllm-build`; sizes count tokens and sequences. Raises OptionError."""

    model_dir: Path
    output_dir: Path
    engine: str = ENGINE
    dtype: str = _OPENVINO.dtypes[0]
    quantization: str | None = None  # of the weights; None: they stay in `dtype`
    kv_cache_dtype: str = _OPENVINO.kv_cache_dtypes[0]
    max_batch_size: int = _OPENVINO.max_batch_size
    max_num_tokens: int = _OPENVINO.max_num_tokens
    max_seq_len: int | None = None  # None: the longest that the checkpoint's config allows
    tokens_per_block: int = TOKENS_PER_BLOCK
    tensorrt: TensorRtOptions = field(default_factory=TensorRtOptions)  # of a TensorRT engine alone

    def __post_init__(self) -> None:
        if self.engine not in OFFERS:
            engines = " or ".join(OFFERS)
            raise OptionError(f"--engine {self.engine}: not supported by this version. Use {engines}.")
        offer = OFFERS[self.engine]
        self._require("--dtype", self.dtype, offer.dtypes)
        self._require("--kv-cache-dtype", self.kv_cache_dtype, offer.kv_cache_dtypes)
        if self.quantization is not None:
            self._require("--quantization", self.quantization, offer.quantizations)
        self._check_engine()
        _require_positive("--max-batch-size", self.max_batch_size)
        _require_positive("--max-num-tokens", self.max_num_tokens)
        if self.max_seq_len is not None:
            _require_positive("--max-seq-len", self.max_seq_len)
        if self.max_num_tokens < self.least_num_tokens:
            raise OptionError(
                f"--max-num-tokens {self.max_num_tokens}: a step of {self.max_batch_size} decodes and one block of "
                f"prefill needs {self.least_num_tokens}. Raise it, or lower --max-batch-size."
            )

    @property
    def least_num_tokens(self) -> int:
        """The smallest budget of a step: the scheduler keeps one block of it for a waiting prefill."""
        return self.max_batch_size + self.tokens_per_block

    def _require(self, flag: str, value: str, offered: tuple[str, ...]) -> None:
        if value not in offered:
            choice = "one" if len(offered) > 1 else "that"
            known = ", ".join(offered)
            raise OptionError(f"{flag} {value}: {self.engine} engines have {known}. Use {choice}, or another --engine.")

    def _check_engine(self) -> None:
        """Refuse what this kind of engine does not have."""
        _require_positive("--tokens-per-block", self.tokens_per_block)
        if self.engine == "tensorrt":
            if not is_power_of_two(self.tokens_per_block):
                raise OptionError(f"--tokens-per-block {self.tokens_per_block}: must be a power of two, such as 32.")
            return
        if self.tokens_per_block != TOKENS_PER_BLOCK:
            raise OptionError(
                f"--tokens-per-block {self.tokens_per_block}: OpenVINO's paged attention on CPU has blocks of "
                f"{TOKENS_PER_BLOCK} tokens. Leave the flag out."
            )
        for option in fields(TensorRtOptions):
            if getattr(self.tensorrt, option.name) != option.default:
                flag = "--" + option.name.replace("_", "-")
                raise OptionError(f"{flag}: is of TensorRT engines only. Leave it out, or pass --engine tensorrt.")


def _require_positive(flag: str, value: int) -> None:
    if value < 1:
        raise OptionError(f"{flag} {value}: must be at least 1.")
    if value > LARGEST_INT32:
        raise OptionError(f"{flag} {value}: must be at most {LARGEST_INT32}.")
