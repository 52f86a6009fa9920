"""`jetway serve` whole, as a user starts it: four processes around a simulated engine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.processes import Running

JETWAY = Path(sys.executable).with_name("jetway")
READY = "Ctrl-C stops"


@contextmanager
def serving(engine_dir: Path, *arguments: str | Path, **settings: str) -> Iterator[Running]:
    """Over a simulated engine, on any free ports, unless `settings` say otherwise; nothing is left behind, not by one
    before it either.
    """
    runtime_parent = engine_dir.parent / "run"
    runtime_parent.mkdir(exist_ok=True)
    settings = {"backend": "simulated", "port": "0", "grpc_port": "0"} | settings
    with Running.start([JETWAY, "serve", engine_dir, *arguments], runtime_parent, **settings) as running:
        yield running
    assert list(runtime_parent.iterdir()) == []


def process_of(running: Running, role: str) -> psutil.Process:
    (process,) = processes_of(running, role)
    return process


def processes_of(running: Running, role: str) -> list[psutil.Process]:
    """The oldest first."""
    found = [child for child in psutil.Process(running.pid).children() if role in child.cmdline()]
    return sorted(found, key=psutil.Process.create_time)
