"""Versions, the machine, and its GPU: found without loading what is only counted."""

import os
import platform
from collections.abc import Iterator
from importlib import metadata

from jetway.runtime.config import ExecutorConfig
from jetway.runtime.errors import ConfigError

from .findings import NotHere

PACKAGES = (
    "jetway-llm", "numpy", "grpcio", "protobuf", "openvino", "torch", "transformers", "tensorrt", "tensorrt_llm", "mpi4py",
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
    free = f"{device.free_bytes / 2**30:.1f} GiB free"
    yield f"{device.name}, compute capability {device.compute_capability}, {free}; {device.num_devices} in all"


def mpi() -> Iterator[str]:
    """What starts the ranks of an engine of several, without starting any. Raises NotHere where some of it is missing."""
    from jetway.runtime.mpirun import find_mpirun

    if _version("mpi4py") == "(none)":
        raise NotHere("mpi4py is not installed; an engine of several ranks needs jetway-llm[mpi] and an MPI library")
    try:
        command = find_mpirun(ExecutorConfig())
    except ConfigError as error:
        raise NotHere(error.message) from error
    yield f"mpi4py {_version('mpi4py')}, and {' '.join(command)} starts ranks"


def room_for(num_ranks: int) -> Iterator[str]:
    """Whether this machine could run an engine of so many ranks, one GPU each. Raises ConfigError, or NotHere."""
    from jetway.runtime.executor.tensorrt.cuda import CudaDevice

    yield from mpi()
    yield from gpu()
    if (num_devices := CudaDevice().num_devices) < num_ranks:
        raise ConfigError(
            f"the engine has {num_ranks} ranks, each on a GPU of its own, and this machine has {num_devices}"
        )


def plugins() -> Iterator[str]:
    """Load TensorRT-LLM's plugin library, as serving does. Raises NotHere where there is no such package or no GPU."""
    from jetway.runtime.executor.tensorrt.plugins import register_plugins

    if _version("tensorrt_llm") == "(none)":
        raise NotHere("tensorrt_llm is not installed in this environment")
    yield from gpu()
    register_plugins()
    yield "TensorRT-LLM's plugins are registered"
