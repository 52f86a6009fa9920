"""A TensorRT build as JSON: what would be converted and built, anywhere."""

import json
from typing import Any

from . import exclusions
from .engine_config import engine_file
from .machine import TENSORRT_LLM_VERSION
from .plan import TensorRtPlan


def describe(planned: TensorRtPlan) -> str:
    """The text to print. Raises OptionError for what TensorRT-LLM cannot build."""
    exclusions.check_build(planned.spec, planned.plan.max_seq_len)
    return json.dumps(_document(planned), indent=2)


def _document(planned: TensorRtPlan) -> dict[str, Any]:
    return {
        "tensorrt_llm": TENSORRT_LLM_VERSION,
        "converted_by": "tensorrt_llm" if planned.decoder is None else "jetway",
        "checkpoint_config": planned.checkpoint_config,
        "build_config": planned.build_config,
        "ranks": [
            {
                "file": engine_file(rank.index),
                "tp_rank": rank.tp_rank,
                "layers": [rank.layers.start, rank.layers.stop],
            }
            for rank in planned.ranks
        ],
        "checkpoint_bytes": planned.checkpoint_bytes,
        "engine_bytes": planned.plan.engine_bytes,
    }
