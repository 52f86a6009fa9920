"""Roles in processes of their own, as in production, for benchmarks."""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import grpc

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_model import Resources
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.garbage import kept_out_of_steps
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.runtime.service import SchedulerService
from jetway.scheduler.classes import DEFAULT_CLASSES
from jetway.scheduler.limits import Limits
from jetway.scheduler.plan import EngineDescription
from jetway.scheduler.scheduler import Scheduler
from jetway.v1.scheduler_pb2_grpc import add_SchedulerServicer_to_server


@dataclass(frozen=True, slots=True)
class Pools:
    num_device_blocks: int
    num_host_blocks: int


@dataclass(frozen=True, slots=True)
class OpenVino:
    """Makes the real engine."""

    directory: Path
    pools: Pools

    def __call__(self) -> Engine:
        resources = Resources(
            num_device_blocks=self.pools.num_device_blocks, num_host_blocks=self.pools.num_host_blocks
        )
        return OpenVinoEngine.load(self.directory, resources)


def scheduler_of(engine: EngineDescription) -> Scheduler:
    """One that uses all that the engine allows."""
    limits = Limits(
        max_num_seqs=engine.max_num_seqs, max_num_batched_tokens=engine.max_num_batched_tokens, aged_slots=0
    )
    return Scheduler(limits, DEFAULT_CLASSES, engine)


@contextmanager
def process(serve: Callable[..., None], *args: object) -> Iterator[Connection]:
    """`serve(connection, *args)` in a process of its own, once it has sent its first word; ended at the end."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=serve, args=(theirs, *args))
    child.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
    finally:
        child.terminate()
        child.join()


@contextmanager
def executor(make_engine: Callable[[], Engine]) -> Iterator[str]:
    """Its address, once it serves."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"unix:{directory}/executor.sock"
        with process(_serve_executor, make_engine, address):
            yield address


@contextmanager
def scheduler(executor_address: str) -> Iterator[str]:
    """Its address, once it serves; it plans ahead by one."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"unix:{directory}/scheduler.sock"
        with process(_serve_scheduler, executor_address, address):
            yield address


def _serve_executor(ready: Connection, make_engine: Callable[[], Engine], address: str) -> None:
    server = ExecutorServer(make_engine(), address)
    server.start()
    ready.send(True)
    server.wait()


def _serve_scheduler(ready: Connection, executor_address: str, address: str) -> None:
    asyncio.run(_step(ready, executor_address, address))


async def _step(ready: Connection, executor_address: str, address: str) -> None:
    session = await ExecutorClient.connect(executor_address, 1)
    planned = scheduler_of(session.engine)
    work = asyncio.Event()
    service = SchedulerService(planned, work, time.monotonic)
    server = grpc.aio.server()
    add_SchedulerServicer_to_server(service, server)
    server.add_insecure_port(address)
    await server.start()
    ready.send(True)
    with kept_out_of_steps():
        await StepLoop(planned, service.publish, work, time.monotonic, FixedOverlap(1)).run(session)
