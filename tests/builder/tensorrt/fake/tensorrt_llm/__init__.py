"""A stand-in for TensorRT-LLM 1.2.1 as far as a build calls it; it knows no argument that the contract does not.

FAKE_TENSORRT_LLM makes it fail: "hang" in its import, "stall" as it reads, "crash" as a build starts, "warn" and build
otherwise, "slow" so that rank 0 ends after rank 2.
"""

import os
import time
from dataclasses import dataclass

__version__ = "1.2.1"

print(f"[TensorRT-LLM] TensorRT LLM version: {__version__}")  # on standard output, as the real one does
if os.environ.get("FAKE_TENSORRT_LLM") == "hang":
    time.sleep(600)


@dataclass
class Mapping:
    """How a model is split, and which part this is."""

    world_size: int = 1
    rank: int = 0
    tp_size: int = 1
    pp_size: int = 1
