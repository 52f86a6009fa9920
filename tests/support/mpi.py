"""mpirun, where there is one: PyPI's mpich brings it into the tests' environment."""

import shutil
import sys
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")

needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
