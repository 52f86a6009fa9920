"""What only a TensorRT engine can be asked for."""

from dataclasses import dataclass
from pathlib import Path

from jetway.builder.errors import OptionError

GEMM_PLUGINS = ("auto", "disable", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtOptions:
    """Named as in `trtllm-build` and its conversion scripts. Raises OptionError."""

    tp_size: int = 1  # ranks that share every layer
    pp_size: int = 1  # groups of ranks that share the layers out
    gemm_plugin: str = "auto"
    multiple_profiles: bool = False
    workers: int | None = None  # ranks built at a time; None: one a GPU
    calib_dataset: Path | None = None  # what scales are measured on, for fp8 weights and an int8 cache

    def __post_init__(self) -> None:
        sizes = {"--tp-size": self.tp_size, "--pp-size": self.pp_size, "--workers": self.workers}
        for flag, size in sizes.items():
            if size is not None and size < 1:
                raise OptionError(f"{flag} {size}: must be at least 1.")
        if self.gemm_plugin not in GEMM_PLUGINS:
            raise OptionError(f"--gemm-plugin {self.gemm_plugin}: not supported. Use {' or '.join(GEMM_PLUGINS)}.")
