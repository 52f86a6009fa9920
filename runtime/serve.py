"""The three roles, each built and run in a process of its own.

The only module that names concrete classes. What a role needs is imported by its function: the roles' environments differ.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from jetway.builder.manifest import Manifest

from .config import ExecutorConfig, SchedulerConfig, ServeConfig
from .errors import ConfigError
from .lifeline import Lifeline
from .named_config import ClassConfig, TenantConfig
from .post import STOP_GRACE_S, Post
from .preflight import read_manifest
from .tasks import beside, until_told_to_stop

if TYPE_CHECKING:
    from jetway.scheduler.plan import EngineDescription
    from jetway.scheduler.scheduler import Scheduler

    from .executor.base import Engine
    from .executor.mpi_ranks import MpiRanks
    from .gateway.app import Gateway


def run_executor(post: Post) -> None:
    from .executor.process import run

    run(load_engine(post.config, post.ranks), post)


def join_ranks(num_ranks: int, lifeline: Lifeline) -> "MpiRanks":
    """This process among so many that mpirun has started, and known to the supervisor as what it is. Raises ConfigError."""
    from .executor.mpi_ranks import MpiRanks

    ranks = MpiRanks.join(num_ranks)
    lifeline.join(ranks.rank)
    return ranks


def load_engine(config: ServeConfig, ranks: "MpiRanks | None" = None) -> "Engine":
    """The engine of the directory, or this rank's part of it, or a simulation of it. Raises ConfigError."""
    from .executor.description import host_blocks

    manifest = read_manifest(config.engine)
    settings = config.executor
    if settings.backend == "simulated":
        return simulate(manifest, settings)
    if manifest.engine == "tensorrt":
        from .executor.tensorrt.cuda import CudaDevice
        from .executor.tensorrt.load import load

        return load(config.engine, settings, CudaDevice(0 if ranks is None else ranks.rank), ranks)
    from .executor.openvino import OpenVinoEngine
    from .executor.openvino_model import Resources

    resources = Resources(
        kv_cache_memory=settings.main_memory_pool_bytes,
        num_device_blocks=settings.num_device_blocks,
        num_host_blocks=host_blocks(manifest, settings.host_cache_memory),
        threads=settings.threads,
    )
    if ranks is None:
        return OpenVinoEngine.load(config.engine, resources)
    from .executor.openvino_stage import OpenVinoStage

    return OpenVinoStage.load(config.engine, resources, ranks)


def simulate(manifest: Manifest, settings: ExecutorConfig) -> "Engine":
    """An engine of the directory's shape without its model."""
    from .executor.description import as_configured
    from .executor.simulated import SimulatedBehaviour, SimulatedEngine, StepTimeModel
    from .executor.simulated_pipeline import SimulatedPipeline

    shape = as_configured(manifest, settings, kind="simulated")
    description = replace(shape, engine_id=f"simulated-{shape.engine_id}")
    step_time = StepTimeModel(step_s=settings.simulated_step_s)
    behaviour = SimulatedBehaviour(step_time=step_time, verify_kv=False)  # a test's oracle costs time in every step
    kind = SimulatedEngine if description.num_stages == 1 else SimulatedPipeline
    return kind(description, frozenset(manifest.tokens.eos_ids), behaviour)


def run_scheduler(post: Post) -> None:
    asyncio.run(_run_scheduler(post))


async def _run_scheduler(post: Post) -> None:
    """Step until told to stop, with one executor after the other."""
    import grpc

    from jetway.v1.scheduler_pb2_grpc import add_SchedulerServicer_to_server

    from .decoding import AsyncDecoding
    from .executor.client import Executors
    from .executors import step_with_each
    from .garbage import kept_out_of_steps
    from .loop import StepLoop
    from .overlap import make_overlap
    from .service import SchedulerService
    from .wire import CHANNEL_OPTIONS

    executors = Executors(post.executor_address, post.epoch)
    session = await executors.connect()
    config = post.config
    scheduler = make_scheduler(config.scheduler, session.engine, config.classes, config.tenants)
    overlap = make_overlap(config.scheduler.overlap, session.engine.num_stages)
    work = asyncio.Event()
    service = SchedulerService(scheduler, work, time.monotonic)
    loop = StepLoop(scheduler, service.publish, work, time.monotonic, overlap)
    server = grpc.aio.server(interceptors=[AsyncDecoding()], options=CHANNEL_OPTIONS)
    add_SchedulerServicer_to_server(service, server)
    server.add_insecure_port(post.address)
    await server.start()
    post.lifeline.announce({})
    with beside(post.lifeline.keep_beating(config.hang_timeout_s)):
        try:
            watching = service.watchdog.watch(service.tell_ready, _stall_limit_s(config))
            with kept_out_of_steps(), beside(watching):
                stepping = step_with_each(scheduler, loop, session, executors.connect, time.monotonic)
                await until_told_to_stop(stepping)
        finally:
            await server.stop(STOP_GRACE_S)


def _stall_limit_s(config: ServeConfig) -> float:
    """How long work may wait for a step's end: half of what a step may take, and for as long as it is held on purpose."""
    return config.hang_timeout_s / 2 + config.scheduler.max_waiting_time_s


def make_scheduler(
    settings: SchedulerConfig,
    engine: "EngineDescription",
    classes: Mapping[str, ClassConfig] = MappingProxyType({}),
    tenants: Mapping[str, TenantConfig] = MappingProxyType({}),
) -> "Scheduler":
    """A scheduler within the settings, and else within what the engine was built for. Raises ConfigError."""
    from jetway.scheduler.classes import ClassError
    from jetway.scheduler.limits import LimitError
    from jetway.scheduler.scheduler import Scheduler

    from .arrival_order import ArrivalOrder
    from .policy import FCFS, limits, service_classes, tenant_weights

    kind = ArrivalOrder if settings.policy == FCFS else Scheduler
    try:
        return kind(
            limits(settings, engine),
            service_classes(settings.policy, classes),
            engine,
            tenant_weights=tenant_weights(tenants),
        )
    except (LimitError, ClassError) as error:
        raise ConfigError(str(error)) from error


def run_gateway(post: Post) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run_gateway(post))


async def _run_gateway(post: Post) -> None:
    """Serve until told to stop, then drain."""
    from .gateway.metrics.sharing import share

    if post.config.gateway.num_processes > 1:
        share(post.directory / "metrics")  # before what is imported next

    from .callers import make_access
    from .gateway.app import Gateway

    config = post.config
    gateway = Gateway(config.gateway, config.engine, config.model_name, post, make_access(config))
    await gateway.connect()
    await gateway.start()
    host = f"[{config.gateway.host}]" if ":" in config.gateway.host else config.gateway.host
    scheme = "http" if config.gateway.tls_certificate is None else "https"
    post.lifeline.announce(
        {
            "model": gateway.model_name,
            "openai": f"{scheme}://{host}:{gateway.http_port}/v1",
            "grpc": f"{host}:{gateway.grpc_port}",
        }
    )
    with beside(post.lifeline.keep_beating(config.hang_timeout_s)):
        await until_told_to_stop(_until_retired(gateway))
        await gateway.stop(config.drain_timeout_s)


async def _until_retired(gateway: "Gateway") -> None:
    """SIGHUP: another gateway has come for this one."""
    replaced = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, replaced.set)
    await replaced.wait()
    await gateway.retire()


ROLES: dict[str, Callable[[Post], None]] = {
    "executor": run_executor,
    "scheduler": run_scheduler,
    "gateway": run_gateway,
}
