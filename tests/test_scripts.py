"""What the scripts show."""

import re
import subprocess

from scripts.setup import progress
from tests.conftest import ROOT

PIP = """
Collecting openai
  Downloading openai-3.57.0-py3-none-any.whl.metadata (35 kB)
Collecting anyio<5,>=4.10.0 (from openai)
  Using cached anyio-4.16.0-py3-none-any.whl.metadata (4.3 kB)
Downloading openai-3.57.0-py3-none-any.whl (2.5 MB)
""".strip().splitlines()


def test_progress_of_pip_is_counted() -> None:
    assert progress(PIP[:1]) == "1 packages found, 0 downloaded"
    assert progress(PIP) == "2 packages found, 1 downloaded"
    assert progress([*PIP, "Installing collected packages: anyio, openai"]) == "2 packages downloaded, installing"


def test_progress_of_others_is_their_last_line() -> None:
    assert progress([]) == ""
    assert progress(["converting", "compiling"]) == "compiling"


def test_bench_lists_what_it_can_run() -> None:
    benchmarks = {
        path.stem for path in (ROOT / "scripts" / "benchmarks").glob("*.py") if "__main__" in path.read_text()
    }
    for arguments, status in (([], 2), (["--help"], 0), (["no-such"], 2)):
        ended = subprocess.run([ROOT / "scripts" / "bench", *arguments], capture_output=True, text=True, check=False)
        assert ended.returncode == status
        assert set(re.findall(r"^  (\w+) +\S", ended.stdout, re.MULTILINE)) == benchmarks
