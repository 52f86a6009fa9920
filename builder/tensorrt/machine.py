"""What a machine has for building TensorRT engines, asked without loading any of it."""

import os
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

TENSORRT_LLM_VERSION = "1.2.1"  # the last stable one with engines
PACKAGES = ("tensorrt_llm", "tensorrt")
_QUERY = "uuid,name,compute_cap,driver_version,memory.free"
_UUID = "GPU-"
_LINE = re.compile(rf"({_UUID}[^,]+), (.+), (\d+)\.(\d+), (\d[\d.]*), ([^,]+)")
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
    complaints: tuple[str, ...] = ()  # why a GPU that might be there is not in `gpus`

    @property
    def compute_capability(self) -> str:
        """As NVIDIA writes it, for example "9.0"; an engine runs on no other. Every GPU here has it."""
        major, minor = self.gpus[0].compute_capability
        return f"{major}.{minor}"


def inspect() -> Machine:
    """This machine. Asks the driver, which may take a while to answer."""
    available_bytes, lines = _available_bytes(), _ask_driver()
    gpus = tuple(gpu for line in lines if (gpu := parse_gpu(line, available_bytes)))
    complaints = [f"nvidia-smi says: {line}" for line in lines if parse_gpu(line, available_bytes) is None]
    visible = _visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return Machine(
        gpus=visible.gpus,
        versions=installed(PACKAGES),
        available_bytes=available_bytes,
        complaints=(*complaints, *visible.complaints),
    )


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of those that are installed."""
    return {name: version for name in packages if (version := _version(name)) is not None}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _ask_driver() -> list[str]:
    """A line for each GPU, or why there is none."""
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except OSError:
        return []  # no driver
    except subprocess.TimeoutExpired:
        return [f"nothing within {_TIMEOUT_S:.0f} s"]
    return [line.strip() for line in asked.stdout.splitlines() if line.strip()]


def parse_gpu(line: str, available_bytes: int) -> Gpu | None:
    """One line of nvidia-smi's answer, its memory in MiB; None: it is of no GPU that a build could use.

    A GPU that has no memory of its own, "[N/A]", has the machine's.
    """
    if (match := _LINE.fullmatch(line)) is None:
        return None
    uuid, name, major, minor, driver_version, free_mib = match.groups()
    free_bytes = int(free_mib) << 20 if free_mib.isdecimal() else available_bytes
    return Gpu(uuid, name, (int(major), int(minor)), driver_version, free_bytes)


class _Visible(NamedTuple):
    gpus: tuple[Gpu, ...]
    complaints: tuple[str, ...]


def _visible(gpus: tuple[Gpu, ...], named: str | None) -> _Visible:
    """Those that CUDA_VISIBLE_DEVICES leaves, by number or the beginning of a UUID, in its order, as CUDA has it."""
    if named is None:
        return _Visible(gpus, ())
    chosen: list[Gpu] = []
    for name in filter(None, map(str.strip, named.split(","))):
        known = [gpu for index, gpu in enumerate(gpus) if name == str(index) or _begins(gpu.uuid, name)]
        if len(known) != 1:  # CUDA sees no more either
            return _Visible(tuple(chosen), (f"CUDA_VISIBLE_DEVICES names {name}, which nvidia-smi does not show",))
        chosen += known
    return _Visible(tuple(chosen), ())


def _begins(uuid: str, name: str) -> bool:
    return name.startswith(_UUID) and uuid.startswith(name)


def _available_bytes() -> int:
    """What Linux says it can give without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) << 10
