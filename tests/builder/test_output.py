"""What becomes of a command's words when nobody takes them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAY = "from jetway.builder.output import say; say('a'); say('b'); open('built', 'w')"
ANSWER = "import sys; from jetway.builder.output import answer; sys.exit(answer('a'))"


def run(code: str, directory: Path, *, full: bool) -> subprocess.CompletedProcess[str]:
    """With a full disk as its standard output, or a pipe whose reader is gone."""
    if full:
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, target = os.pipe()
        os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-c", code], cwd=directory, stdout=target, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(target)


@pytest.mark.parametrize("full", [False, True])
def test_a_build_goes_on(tmp_path: Path, *, full: bool) -> None:
    done = run(SAY, tmp_path, full=full)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "built").exists()


@pytest.mark.parametrize(
    ("full", "status", "words"),
    [(False, 0, ""), (True, 1, "build-engine: standard output cannot be written: No space left on device\n")],
)
def test_an_answer_that_cannot_be_given_is_a_failure_unless_its_reader_left(
    tmp_path: Path, *, full: bool, status: int, words: str
) -> None:
    done = run(ANSWER, tmp_path, full=full)
    assert (done.returncode, done.stderr) == (status, words)
