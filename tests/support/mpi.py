"""mpirun, where there is one: PyPI's mpich brings it into the tests' environment."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")

needs_mpi = pytest.mark.skipif(
    MPIRUN is None or find_spec("mpi4py") is None, reason="mpi: mpirun or mpi4py is missing; scripts/test installs both"
)
