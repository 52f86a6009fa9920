"""Versions, the machine, and its GPU: found without loading what is only counted."""

import os
import platform
from collections.abc import Iterator
from importlib import metadata

from jetway.runtime.errors import ConfigError

from .findings import NotHere

PACKAGES = (
    "jetway-llm", "numpy", "grpcio", "protobuf", "openvino", "torch", "transformers", "tensorrt", "tensorrt_llm",
)  # fmt: skip


def versions() -> Iterator[str]:
    yield f"Python {platform.python_version()} on {platform.platform()}"
    yield ", ".join(f"{name} {_version(name)}" for name in PACKAGES)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(none)"


def machine() -> Iterator[str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield f"{len(os.sched_getaffinity(0))} cores, {memory / 2**30:.1f} GiB of memory"


def gpu() -> Iterator[str]:
    """Raises NotHere without one that torch can use."""
    from jetway.runtime.executor.tensorrt.cuda import CudaDevice

    try:
        device = CudaDevice()
    except ConfigError as error:
        raise NotHere(error.message) from error
    yield f"{device.name}, compute capability {device.compute_capability}, {device.free_bytes / 2**30:.1f} GiB free"


def plugins() -> Iterator[str]:
    """Load TensorRT-LLM's plugin library, as serving does. Raises NotHere where there is no such package or no GPU."""
    from jetway.runtime.executor.tensorrt.plugins import register_plugins

    if _version("tensorrt_llm") == "(none)":
        raise NotHere("tensorrt_llm is not installed in this environment")
    yield from gpu()
    register_plugins()
    yield "TensorRT-LLM's plugins are registered"
