"""Processes that load TensorRT-LLM, some at a time, with what they say in a log each.

Importing it starts MPI, prints, and may never return where MPI cannot start (contracts/tensorrt-llm.md, 3.6), so the
command itself never does.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jetway.builder.errors import ConversionError

from .worker import IMPORTED

IMPORT_TIMEOUT_S = 300.0  # a healthy import takes some 15 s
LOG_LINES = 10  # of a failed worker, shown with its error
_POLL_S = 1.0
_CHUNK_BYTES = 4096


class Job(NamedTuple):
    """What one worker does."""

    name: str  # for messages
    request: dict[str, Any]  # as `worker` reads it
    log: Path


@dataclass(slots=True)
class _Worker:
    job: Job
    gpu: str | None
    process: subprocess.Popen[bytes]
    started_s: float = field(default_factory=time.monotonic)
    has_imported: bool = False


def run(jobs: Iterable[Job], *, gpus: Iterable[str | None], say: Callable[[str], None]) -> None:
    """Do all jobs, one at a time on each of `gpus`; `say` hears of each one's progress.

    A worker sees its own GPU alone, by UUID; with None it sees none. Raises ConversionError when a job has failed.
    However it ends, no worker is left.
    """
    waiting, free = deque(jobs), deque(gpus)
    running: list[_Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and free:
                    running.append(_start(waiting.popleft(), free.popleft(), selector))
                for key, _ in selector.select(_POLL_S):
                    if not _hear(key.data, say):
                        selector.unregister(key.fileobj)
                        running.remove(key.data)
                        free.append(key.data.gpu)
                        _end(key.data)
                for worker in running:
                    _check_import(worker)
        finally:
            for worker in running:
                os.killpg(worker.process.pid, signal.SIGKILL)  # it leads a group of its own, with MPI's helpers
                worker.process.communicate()


def _start(job: Job, gpu: str | None, selector: selectors.BaseSelector) -> _Worker:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    # -P: a module in the current directory is no part of this.
    command = [sys.executable, "-P", "-m", "jetway.builder.tensorrt.worker"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu or ""}
    with job.log.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
        )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(job.request).encode() + b"\n")
    process.stdin.flush()  # and it stays open: its end is the worker's sign that this process is gone
    worker = _Worker(job, gpu, process)
    selector.register(process.stdout, selectors.EVENT_READ, worker)
    return worker


def _hear(worker: _Worker, say: Callable[[str], None]) -> bool:
    """Pass on what a worker says; whether it may say more."""
    assert worker.process.stdout is not None
    said = os.read(worker.process.stdout.fileno(), _CHUNK_BYTES).decode()
    for words in said.splitlines():
        worker.has_imported |= words == IMPORTED
        say(f"{worker.job.name} {words}")
    return bool(said)


def _end(worker: _Worker) -> None:
    status = worker.process.wait()  # before its input is closed, which would end it
    worker.process.communicate()
    if status:
        last = worker.job.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        ended = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        raise ConversionError(f"{worker.job.name}: TensorRT-LLM {ended}. {worker.job.log} ends:\n" + "\n".join(last))


def _check_import(worker: _Worker) -> None:
    if not worker.has_imported and time.monotonic() - worker.started_s > IMPORT_TIMEOUT_S:
        raise ConversionError(
            f"{worker.job.name}: importing tensorrt_llm has not ended within {IMPORT_TIMEOUT_S:.0f} s, as happens where "
            f"MPI cannot start. Try: {sys.executable} -c 'import mpi4py.MPI'. {worker.job.log} has what it said."
        )
