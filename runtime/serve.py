"""One role's process: `python -m jetway.runtime.serve ROLE ...`, started by the supervisor.

The only module that names concrete classes. What a role needs is imported by its function: the roles' environments differ.
"""

import argparse
import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from jetway.builder.manifest import Manifest, ManifestError, read

from .config import ExecutorConfig, SchedulerConfig, ServeConfig
from .directory import executor_socket, scheduler_socket
from .errors import ConfigError, JetwayError
from .layers import resolve
from .lifeline import Lifeline

if TYPE_CHECKING:
    from jetway.scheduler.plan import EngineDescription
    from jetway.scheduler.scheduler import Scheduler

    from .executor.base import Engine

STOP_GRACE_S = 1.0  # what open calls get once a role is told to stop; the gateway has drained by then


@dataclass(frozen=True, slots=True)
class Post:
    """What a role knows of the whole: the configuration, where the others are, and its tie to the supervisor."""

    config: ServeConfig
    directory: Path
    epoch: int
    lifeline: Lifeline

    @property
    def executor_address(self) -> str:
        return f"unix:{executor_socket(self.directory, self.epoch)}"

    @property
    def scheduler_address(self) -> str:
        return f"unix:{scheduler_socket(self.directory)}"


def run_executor(post: Post) -> None:
    from .executor.server import ExecutorServer

    engine = load_engine(post.config)
    server = ExecutorServer(engine, post.executor_address)
    server.start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    description = engine.describe()
    pool = f"{description.num_device_blocks} blocks of {description.block_size} tokens"
    post.lifeline.announce({"engine": description.kind, "pool": pool})
    stop.wait()
    server.stop(STOP_GRACE_S)


def load_engine(config: ServeConfig) -> "Engine":
    """The engine of the directory, or a simulation of it. Raises ConfigError."""
    manifest = read_manifest(config.engine)
    settings = config.executor
    num_host_blocks = settings.host_cache_memory // block_bytes(manifest)
    if settings.backend == "simulated":
        return simulate(manifest, settings, num_host_blocks)
    if manifest.engine != "openvino":
        raise ConfigError(f"{config.engine} holds a {manifest.engine} engine; this version serves openvino engines")
    from .executor.openvino import OpenVinoEngine

    return OpenVinoEngine.load(
        config.engine,
        kv_cache_memory=settings.kv_cache_memory,
        num_device_blocks=settings.num_device_blocks,
        num_host_blocks=num_host_blocks,
        threads=settings.threads,
    )


def simulate(manifest: Manifest, settings: ExecutorConfig, num_host_blocks: int) -> "Engine":
    """An engine of the directory's shape without its model."""
    from jetway.scheduler.plan import EngineDescription

    from .executor.simulated import SimulatedBehaviour, SimulatedEngine

    num_device_blocks = settings.num_device_blocks or settings.kv_cache_memory // block_bytes(manifest)
    if not num_device_blocks:
        least = block_bytes(manifest)
        raise ConfigError(f"kv_cache_memory must hold one block of {least} bytes, not {settings.kv_cache_memory}")
    description = EngineDescription(
        engine_id=f"simulated-{manifest.engine_id}",
        kind="simulated",
        version=version("jetway-llm"),
        block_size=manifest.tokens_per_block,
        num_device_blocks=num_device_blocks,
        num_host_blocks=num_host_blocks,
        block_bytes=block_bytes(manifest),
        max_num_seqs=manifest.max_batch_size,
        max_num_batched_tokens=manifest.max_num_tokens,
        max_seq_len=manifest.max_seq_len,
        vocab_size=manifest.vocab_size,
        capabilities=("copy", "logprobs"),
    )
    behaviour = SimulatedBehaviour(verify_kv=False)  # a test's oracle; it would cost time in every step
    return SimulatedEngine(description, frozenset(manifest.tokens.eos_ids), behaviour)


def block_bytes(manifest: Manifest) -> int:
    return manifest.kv_bytes_per_token * manifest.tokens_per_block


def read_manifest(directory: Path) -> Manifest:
    """Raises ConfigError."""
    try:
        return read(directory)
    except ManifestError as error:
        raise ConfigError(str(error)) from error


def run_scheduler(post: Post) -> None:
    asyncio.run(_run_scheduler(post))


async def _run_scheduler(post: Post) -> None:
    """Step until told to stop. Raises Unavailable when the executor is lost."""
    import grpc

    from jetway.v1.scheduler_pb2_grpc import add_SchedulerServicer_to_server

    from .executor.client import ExecutorClient
    from .executor.wire import CHANNEL_OPTIONS
    from .loop import StepLoop
    from .service import SchedulerService

    client = ExecutorClient(post.executor_address, post.epoch)
    engine = await client.describe()
    scheduler = make_scheduler(post.config.scheduler, engine)
    work = asyncio.Event()
    service = SchedulerService(scheduler, engine, work, time.monotonic)
    server = grpc.aio.server(options=CHANNEL_OPTIONS)
    add_SchedulerServicer_to_server(service, server)
    server.add_insecure_port(post.scheduler_address)
    await server.start()
    post.lifeline.announce({})
    try:
        await until_told_to_stop(StepLoop(scheduler, client, service.publish, work, time.monotonic).run())
    finally:
        await server.stop(STOP_GRACE_S)
        await client.close()


def make_scheduler(settings: SchedulerConfig, engine: "EngineDescription") -> "Scheduler":
    """A scheduler within the settings, and else within what the engine was built for. Raises ConfigError."""
    from jetway.scheduler.classes import ServiceClass
    from jetway.scheduler.limits import LimitError, Limits, PreemptionMode
    from jetway.scheduler.scheduler import Scheduler

    try:
        limits = Limits(
            max_num_seqs=settings.max_num_seqs or engine.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens or engine.max_num_batched_tokens,
            preemption_mode=PreemptionMode(settings.preemption_mode),
            watermark=settings.watermark,
        )
        bounds = ServiceClass(
            max_queued_requests=settings.max_queued_requests, max_queued_tokens=settings.max_queued_tokens
        )
        return Scheduler(limits, [bounds], engine)
    except LimitError as error:
        raise ConfigError(str(error)) from error


def run_gateway(post: Post) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_gateway(post))


async def _run_gateway(post: Post) -> None:
    """Serve until told to stop, then drain."""
    from .gateway.app import Gateway

    config = post.config
    gateway = Gateway(config.gateway, config.engine, config.model_name, post.scheduler_address)
    await gateway.start()
    await gateway.ready()
    host = f"[{config.gateway.host}]" if ":" in config.gateway.host else config.gateway.host
    post.lifeline.announce(
        {
            "model": gateway.model_name,
            "openai": f"http://{host}:{gateway.http_port}/v1",
            "grpc": f"{host}:{gateway.grpc_port}",
        }
    )
    await until_told_to_stop(asyncio.Event().wait())
    await gateway.stop(config.drain_timeout_s)


async def until_told_to_stop(work: Coroutine[None, None, object]) -> None:
    """Do `work` until SIGTERM. Raises what it raises."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


ROLES: dict[str, Callable[[Post], None]] = {
    "executor": run_executor,
    "scheduler": run_scheduler,
    "gateway": run_gateway,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 stopped, 1 failed, 2 cannot serve as configured."""
    parser = argparse.ArgumentParser(prog="jetway.runtime.serve", description="One role of `jetway serve`.")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    args = parser.parse_args(argv)
    lifeline = Lifeline(args.lifeline_fd, args.ready_fd)
    lifeline.watch()
    try:
        config = resolve({}, {}, args.config).config
        logging.basicConfig(level=config.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
        ROLES[args.role](Post(config, args.config.parent, args.epoch, lifeline))
    except ConfigError as error:
        lifeline.refuse(error)
        return 2
    except JetwayError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
