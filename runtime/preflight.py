"""What would fail once the engine has loaded, found before anything slow starts. Imports no numpy."""

import os
import subprocess
from pathlib import Path

from jetway.builder.manifest import Manifest, ManifestError, read
from jetway.scheduler.classes import ClassError
from jetway.scheduler.limits import LimitError
from jetway.scheduler.plan import EngineDescription

from .callers import make_access
from .config import ServeConfig
from .errors import ConfigError
from .executor.description import as_configured
from .gateway.tls import load_tls
from .mpirun import num_ranks
from .overlap import make_overlap
from .policy import limits

_PYTHON_TIMEOUT_S = 20.0
_SIMULATED_TOKEN_BYTES = 8  # what a simulated pool keeps of a token


def check(config: ServeConfig) -> None:
    """Raises ConfigError for settings that contradict the engine directory, this machine, or each other."""
    manifest = read_manifest(config.engine)
    engine = as_configured(manifest, config.executor, kind=manifest.engine)
    try:
        limits(config.scheduler, engine).check_engine(engine)
        make_overlap(config.scheduler.overlap, engine.num_stages)
        make_access(config)
        load_tls(config.gateway)
    except (LimitError, ClassError) as error:
        raise ConfigError(str(error)) from error
    _check_memory(engine, config.executor.backend, num_ranks(manifest, config.executor))
    if config.executor.python:
        _check_python(config.executor.python)


def read_manifest(directory: Path) -> Manifest:
    """Raises ConfigError."""
    try:
        return read(directory)
    except ManifestError as error:
        raise ConfigError(str(error)) from error


def _check_memory(engine: EngineDescription, backend: str, num_ranks: int) -> None:
    """Of main memory; a pool on a GPU is for the executor to find room for, and each GPU has a host pool of its own."""
    simulated = backend == "simulated"
    on_gpu = engine.kind == "tensorrt" and not simulated
    num_device_blocks = 0 if on_gpu else engine.num_device_blocks
    block_bytes = _SIMULATED_TOKEN_BYTES * engine.block_size if simulated else engine.block_bytes
    needed = block_bytes * (num_device_blocks + engine.num_host_blocks) * (num_ranks if on_gpu else 1)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        blocks = f"{num_device_blocks} device and {engine.num_host_blocks} host blocks"
        if on_gpu and num_ranks > 1:
            blocks += f" in each of {num_ranks} ranks"
        raise ConfigError(
            f"{blocks} need {needed / 2**30:.1f} GiB of memory, but this machine has {there / 2**30:.1f}; "
            "lower kv_cache_memory, num_device_blocks or host_cache_memory"
        )


def _check_python(python: str) -> None:
    """Let it find this package; it prints where, so that a program that is no Python does not pass."""
    try:
        found = subprocess.run(
            [python, "-c", "import jetway.runtime as package; print(package.__path__)"],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PYTHON_TIMEOUT_S,
        )
    except OSError as error:
        raise ConfigError(f"cannot start the executor with {python}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{python} did not start within {_PYTHON_TIMEOUT_S:g} s") from error
    if found.returncode != 0 or not found.stdout:
        raise ConfigError(f"{python} cannot import jetway: install jetway-llm in that interpreter's environment")
