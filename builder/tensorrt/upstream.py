"""Conversions that are TensorRT-LLM's own: of other architectures, and with scales that are measured."""

from typing import Any

from jetway.builder.errors import CheckpointError

from .checkpoint_config import mapping, quantization
from .exclusions import is_calibrated
from .machine import Machine
from .parallel import Rank
from .plan import TensorRtPlan
from .workers import Job


def check_no_code(planned: TensorRtPlan) -> None:
    """Raise CheckpointError for a checkpoint with code of its own, which TensorRT-LLM would run."""
    for file in sorted(planned.plan.source.directory.glob("*.py")):
        raise CheckpointError(file, "is code, which TensorRT-LLM's conversion may run", "Remove it")


def gpu(planned: TensorRtPlan, machine: Machine) -> str | None:
    """The GPU that the workers need, by UUID."""
    return machine.gpus[0].uuid if is_calibrated(planned.spec) else None


def jobs(planned: TensorRtPlan, output_dir: str) -> list[Job]:
    """The workers that write a TensorRT-LLM checkpoint in `output_dir`: one a rank, or one in all that calibrates."""
    if is_calibrated(planned.spec):
        request = _request(planned, output_dir) | {
            "job": "calibrate",
            "calib_dataset": str(planned.spec.tensorrt.calib_dataset),
        }
        return [Job("conversion", request, planned.logs_dir / "convert.log")]
    return [_conversion(planned, rank, output_dir) for rank in planned.ranks]


def _conversion(planned: TensorRtPlan, rank: Rank, output_dir: str) -> Job:
    request = _request(planned, output_dir) | {"job": "convert", "rank": rank.index}
    return Job(f"rank {rank.index}", request, planned.logs_dir / f"convert{rank.index}.log")


def _request(planned: TensorRtPlan, output_dir: str) -> dict[str, Any]:
    spec = planned.spec
    return {
        "architecture": planned.plan.config.architecture,
        "model_dir": str(planned.plan.source.directory.absolute()),
        "output_dir": output_dir,
        "dtype": spec.dtype,
        "mapping": mapping(spec),
        "quantization": quantization(spec),
    }
