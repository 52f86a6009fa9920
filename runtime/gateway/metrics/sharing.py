"""The figures of several gateways as one: each keeps its own in files of one directory, and any of them reads all.

Imports prometheus_client late, which looks once, when it is imported, where it shall keep its figures.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jetway.runtime.errors import Unavailable

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.registry import Collector

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_KINDS = ("counter", "histogram", "gauge_livesum")  # a file of each, as the library names them
_FILE_BYTES = 1 << 16  # the library's; far more than the gateway's figures take


def share(directory: Path) -> None:
    """Keep this process's figures there, which is made. Only before prometheus_client is imported.

    Raises Unavailable where there is no room: the library maps files with holes, and to write where no page can be had
    kills the process.
    """
    try:
        directory.mkdir(exist_ok=True)
        for kind in _KINDS:
            _fill(directory / f"{kind}_{os.getpid()}.db")
    except OSError as error:
        raise Unavailable(f"the figures of this gateway cannot be kept in {directory}: {error.strerror}") from error
    os.environ[_VARIABLE] = str(directory)


def _fill(file: Path) -> None:
    """Take the file's room, unless a process of this id that has ended left it. Nobody reads it half written."""
    if file.exists():
        return
    unseen = file.with_suffix(".new")
    try:
        unseen.write_bytes(bytes(_FILE_BYTES))
        unseen.rename(file)
    finally:
        unseen.unlink(missing_ok=True)


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
