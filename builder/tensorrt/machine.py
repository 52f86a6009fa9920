"""What a machine has for building TensorRT engines, asked without loading any of it."""

import os
import subprocess
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

TENSORRT_LLM_VERSION = "1.2.1"  # the last stable one with engines
PACKAGES = ("tensorrt_llm", "tensorrt")
_QUERY = "uuid,name,compute_cap,driver_version,memory.free"
_TIMEOUT_S = 60.0


class Gpu(NamedTuple):
    """One GPU, by the driver's words."""

    uuid: str
    name: str
    compute_capability: tuple[int, int]
    driver_version: str
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a build runs."""

    gpus: tuple[Gpu, ...]
    versions: dict[str, str]  # of PACKAGES that are installed
    available_bytes: int  # of main memory

    @property
    def compute_capability(self) -> str:
        """As NVIDIA writes it, for example "9.0"; an engine runs on no other. Every GPU here has it."""
        major, minor = self.gpus[0].compute_capability
        return f"{major}.{minor}"


def inspect() -> Machine:
    """This machine."""
    available_bytes = _available_bytes()
    return Machine(gpus=_visible(_gpus(available_bytes)), versions=installed(PACKAGES), available_bytes=available_bytes)


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of those that are installed."""
    return {name: version for name in packages if (version := _version(name)) is not None}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpus(available_bytes: int) -> tuple[Gpu, ...]:
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()  # no driver, or none that answers
    return tuple(parse_gpu(line, available_bytes) for line in asked.stdout.splitlines() if line.strip())


def parse_gpu(line: str, available_bytes: int) -> Gpu:
    """One line of nvidia-smi's answer, its memory in MiB; a GPU that has none of its own, "[N/A]", has the machine's."""
    uuid, name, capability, driver_version, free_mib = (field.strip() for field in line.split(","))
    major, minor = capability.split(".")
    free_bytes = int(free_mib) << 20 if free_mib.isdecimal() else available_bytes
    return Gpu(uuid, name, (int(major), int(minor)), driver_version, free_bytes)


def _visible(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, by number or UUID, in its order."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return gpus
    known = {name: gpu for index, gpu in enumerate(gpus) for name in (str(index), gpu.uuid)}
    return tuple(known[name] for name in map(str.strip, named.split(",")) if name in known)


def _available_bytes() -> int:
    """What Linux says it can give without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) << 10
