"""Machines that could build, made up."""

from typing import Any

from jetway.builder.tensorrt.machine import Gpu, Machine

H100 = Gpu("GPU-a", "NVIDIA H100", (9, 0), "580.65.06", 80 << 30)
H100_TOO = H100._replace(uuid="GPU-b")
VERSIONS = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"}


def make_machine(**fields: Any) -> Machine:
    defaults: dict[str, Any] = {"gpus": (H100, H100_TOO), "versions": VERSIONS, "available_bytes": 64 << 30}
    return Machine(**defaults | fields)
