"""An executor in a process of its own, as in production, for benchmarks of the real engine."""

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.server import ExecutorServer


@dataclass(frozen=True, slots=True)
class Pools:
    num_device_blocks: int
    num_host_blocks: int


@contextmanager
def executor(engine: Path, pools: Pools) -> Iterator[str]:
    """Its address, once it serves."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        address, ready = f"unix:{directory}/executor.sock", spawn.Event()
        process = spawn.Process(target=_serve, args=(engine, pools, address, ready))
        process.start()
        try:
            while not ready.wait(timeout=1.0):
                if not process.is_alive():
                    raise SystemExit("the executor process ended before it was ready")
            yield address
        finally:
            process.terminate()
            process.join()


def _serve(directory: Path, pools: Pools, address: str, ready: Event) -> None:
    engine = OpenVinoEngine.load(
        directory,
        kv_cache_memory=0,
        num_device_blocks=pools.num_device_blocks,
        num_host_blocks=pools.num_host_blocks,
    )
    server = ExecutorServer(engine, address)
    server.start()
    ready.set()
    server.wait()
