"""From an engine directory to an engine on the GPU, with as much KV as there is room for."""

import socket
from pathlib import Path

from jetway.builder.manifest import Manifest, engine_file
from jetway.runtime.config import ExecutorConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.description import device_blocks, host_blocks
from jetway.runtime.executor.rank_messages import gathered
from jetway.runtime.executor.ranks import Ranks
from jetway.runtime.executor.trt_bindings import DeviceMemory, StepBinder
from jetway.runtime.executor.trt_check import Surroundings, read_engine
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_rank import RankPart
from jetway.runtime.executor.trt_tensors import ALL_REDUCE_WORKSPACE, input_names

from .contexts import EngineContexts
from .device import Device
from .engine import TensorRtEngine
from .plugins import import_package, package_version, register_plugins
from .pools import SlabPools
from .runner import StepRunner
from .workspace import allocate_workspace


def load(directory: Path, settings: ExecutorConfig, device: Device, ranks: Ranks | None = None) -> TensorRtEngine:
    """The engine, or this rank's part of it; all ranks load at once.

    Raises ConfigError for an engine that cannot be served here, and for pools that do not fit.
    """
    manifest = read_engine(directory, surroundings(device, ranks))
    if ranks is None:
        register_plugins()
    else:
        check_devices(ranks, socket.gethostname(), device.num_devices)
        import_package()  # starts MPI, if that has not been done, and has what the ranks of a stage need
    return assemble(manifest, directory, settings, device, ranks)


def assemble(
    manifest: Manifest, directory: Path, settings: ExecutorConfig, device: Device, ranks: Ranks | None = None
) -> TensorRtEngine:
    """The engine of a directory that may be served; what steps need is allocated before the pools get the rest."""
    part = RankPart.of(manifest, 0 if ranks is None else ranks.rank)
    layout = KvLayout.of(manifest, part)
    contexts = EngineContexts(directory / engine_file(part.rank), device)
    names = input_names(contexts.ports, part, layout.dims)  # refuses here what memory could not be sized by
    runner = StepRunner(contexts, manifest, layout, part, device)
    workspace = allocate_workspace(part, device.num_devices) if ALL_REDUCE_WORKSPACE in names else None
    num_device_blocks = num_blocks(manifest, layout, settings, device.free_bytes)
    if ranks is not None:
        num_device_blocks = min(gathered(ranks, num_device_blocks))
    num_host_blocks = host_blocks(manifest, settings.host_cache_memory)
    pools = SlabPools(device, layout, num_device_blocks, num_host_blocks, part.max_launches)
    memory = DeviceMemory(kv_pool=pools.address, all_reduce_workspace=workspace)
    return TensorRtEngine(manifest, StepBinder(contexts.ports, part, layout, memory), runner, pools, ranks)


def surroundings(device: Device, ranks: Ranks | None) -> Surroundings:
    """What there is to serve an engine on, and with. Raises ConfigError where a package is missing."""
    return Surroundings(
        tensorrt_llm_version=package_version("tensorrt_llm"),
        tensorrt_version=package_version("tensorrt"),
        compute_capability=device.compute_capability,
        num_ranks=1 if ranks is None else ranks.size,
    )


def check_devices(ranks: Ranks, host: str, num_devices: int) -> None:
    """A GPU for each of the ranks that run on this host. Raises ConfigError."""
    num_here = gathered(ranks, host).count(host)
    if num_here > num_devices:
        raise ConfigError(f"{num_here} ranks run on {host}, each on a GPU of its own, and it has {num_devices}")


def num_blocks(manifest: Manifest, layout: KvLayout, settings: ExecutorConfig, free_bytes: int) -> int:
    """Blocks of the device pool, of `free_bytes` that nothing else has taken. Raises ConfigError."""
    if settings.num_device_blocks is not None and settings.num_device_blocks > layout.max_num_blocks:
        raise ConfigError(
            f"num_device_blocks is {settings.num_device_blocks}; TensorRT-LLM's offsets reach {layout.max_num_blocks}"
        )
    memory = settings.kv_cache_memory
    if memory is None:
        memory = int(free_bytes * settings.free_gpu_memory_fraction)
        if settings.num_device_blocks is None and memory < manifest.block_bytes:
            raise ConfigError(
                f"{free_bytes} bytes are free on the GPU beside the engine, of which free_gpu_memory_fraction "
                f"{settings.free_gpu_memory_fraction} is less than one block of {manifest.block_bytes} bytes"
            )
    count = device_blocks(manifest, kv_cache_memory=memory, num_device_blocks=settings.num_device_blocks)
    return min(count, layout.max_num_blocks)
