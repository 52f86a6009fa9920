"""The figures of several gateways as one: each keeps its own in files of one directory, and any of them reads all.

Imports prometheus_client late, which looks once, when it is imported, where it shall keep its figures.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.registry import Collector

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share(directory: Path) -> None:
    """Keep this process's figures there, which is made. Only before prometheus_client is imported."""
    directory.mkdir(exist_ok=True)
    os.environ[_VARIABLE] = str(directory)


def are_shared() -> bool:
    return _VARIABLE in os.environ


def collect_all() -> "Iterable[Metric]":
    """What only grows of all processes that ever were, and how things stand of those that live."""
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

    directory = Path(os.environ[_VARIABLE])
    for file in directory.glob("gauge_live*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not Path(f"/proc/{pid}").exists():
            mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]  # the library's, as the next
    collector: Collector = MultiProcessCollector(None, directory)  # type: ignore[no-untyped-call]
    return collector.collect()
