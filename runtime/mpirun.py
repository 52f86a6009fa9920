"""How the ranks of an executor are started. Imports no mpi4py: that is for the ranks."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from jetway.builder.manifest import Manifest

from .config import ExecutorConfig
from .errors import ConfigError
from .executor.description import num_stages


def num_ranks(manifest: Manifest, settings: ExecutorConfig) -> int:
    """Of how many processes the executor consists. Raises ConfigError when the settings contradict the engine."""
    stages = num_stages(manifest, settings)
    if settings.backend == "simulated":
        return 1  # its stages are threads
    return stages if manifest.tensorrt is None else stages * manifest.tensorrt.tp_size


def start_ranks(argv: Sequence[str], settings: ExecutorConfig, num_ranks: int) -> list[str]:
    """The command that starts so many ranks by `argv`: for one, that alone. Raises ConfigError when mpirun is missing."""
    if num_ranks == 1:
        return [*argv]
    mpirun = find_mpirun(settings)
    return [
        sys.executable,
        "-m",
        "jetway.runtime.tied",
        *mpirun,
        "-n",
        str(num_ranks),
        *argv,
        "--num-ranks",
        str(num_ranks),
    ]


def find_mpirun(settings: ExecutorConfig) -> list[str]:
    """The program and its arguments: from the executor's environment, else from the PATH. Raises ConfigError."""
    try:
        program, *arguments = shlex.split(settings.mpirun)
    except ValueError as error:
        raise ConfigError(f"mpirun must be a command line, not {settings.mpirun!r}") from error
    python = settings.python or sys.executable
    beside = Path(shutil.which(python) or python).parent
    found = shutil.which(program, path=str(beside)) or shutil.which(program)
    if found is None:
        raise ConfigError(
            f"several ranks are started by mpirun, and {program} is neither in {beside} nor on the PATH: install the MPI "
            "that mpi4py uses (pip install mpi4py mpich, in the executor's environment), or name its mpirun"
        )
    return [found, *arguments]
