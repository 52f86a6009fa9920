"""A TensorRT build as JSON: what would be converted and built, anywhere."""

import json
from typing import Any

from . import exclusions, windows
from .machine import TENSORRT_LLM_VERSION
from .plan import TensorRtPlan


def describe(planned: TensorRtPlan, *, convert_only: bool) -> str:
    """The text to print. Raises OptionError for what cannot be built, if that is asked for."""
    document = _conversion(planned)
    if not convert_only:
        exclusions.check_build(planned.spec, planned.plan.max_seq_len)
        windows.check(planned.plan, planned.sliding_window)
        document |= _build(planned)
    return json.dumps(document, indent=2)


def _conversion(planned: TensorRtPlan) -> dict[str, Any]:
    return {
        "tensorrt_llm": TENSORRT_LLM_VERSION,
        "converted_by": "tensorrt_llm" if planned.decoder is None else "jetway",
        "checkpoint_config": planned.checkpoint_config,
        "sliding_window": planned.sliding_window,
        "ranks": [
            {"rank": rank.index, "tp_rank": rank.tp_rank, "layers": [rank.layers.start, rank.layers.stop]}
            for rank in planned.ranks
        ],
        "checkpoint_bytes": planned.checkpoint_bytes,
    }


def _build(planned: TensorRtPlan) -> dict[str, Any]:
    return {"build_config": planned.build_config, "engine_bytes": planned.engine_bytes}
