"""Workers end with whoever started them, however that ends."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jetway.builder.errors import ConversionError
from jetway.builder.tensorrt import workers
from jetway.builder.tensorrt.workers import Job

GPUS = ("GPU-a", "GPU-b")

pytestmark = pytest.mark.usefixtures("fake_tensorrt_llm")


def make_job(rank: int, directory: Path, **request: Any) -> Job:
    """Build `rank` of a checkpoint that is not there."""
    fields = {"job": "build", "rank": rank, "checkpoint_dir": str(directory), "output_dir": str(directory)}
    return Job(f"rank {rank}", fields | request, directory / f"rank{rank}.log")


def test_the_first_failure_ends_the_others(tmp_path: Path) -> None:
    said: list[str] = []
    jobs = [make_job(rank, tmp_path) for rank in range(3)]
    with pytest.raises(ConversionError, match="No such file or directory"):
        workers.run(jobs, gpus=GPUS, say=said.append)
    assert {words.split(" ", 2)[2] for words in said} == {"tensorrt_llm imported"}
    assert not (tmp_path / "rank2.log").exists()


def test_an_interrupt_leaves_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TENSORRT_LLM", "stall")
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    def interrupt(words: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", remember)
    with pytest.raises(KeyboardInterrupt):
        workers.run([make_job(rank, tmp_path) for rank in range(2)], gpus=GPUS, say=interrupt)
    assert [process.returncode for process in started] == [-signal.SIGKILL, -signal.SIGKILL]


def test_a_worker_ends_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which was killed, and could end nobody: the worker's standard input ends."""
    monkeypatch.setenv("FAKE_TENSORRT_LLM", "hang")
    command = [sys.executable, "-m", "jetway.builder.tensorrt.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdin is not None and worker.stderr is not None
        worker.stdin.write(b'{"job": "build"}\n')
        worker.stdin.flush()
        assert b"TensorRT LLM version" in worker.stderr.readline()  # it is in the import that hangs
        worker.stdin.close()
        assert worker.wait() == 1
