"""From an engine directory to an engine on the GPU, with as much KV as there is room for."""

from pathlib import Path

from jetway.builder.manifest import Manifest, engine_file
from jetway.runtime.config import ExecutorConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.description import device_blocks, host_blocks
from jetway.runtime.executor.trt_check import Surroundings, read_engine
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_tensors import input_names

from .contexts import EngineContexts
from .device import Device
from .engine import MAX_LAUNCHES, TensorRtEngine
from .plugins import package_version, register_plugins
from .pools import SlabPools
from .runner import StepRunner

RANK = 0  # the only one: engines of more are refused


def load(directory: Path, settings: ExecutorConfig, device: Device) -> TensorRtEngine:
    """Raises ConfigError for an engine that cannot be served here, and for pools that do not fit."""
    manifest = read_engine(directory, surroundings(device))
    register_plugins()
    return assemble(manifest, directory, settings, device)


def assemble(manifest: Manifest, directory: Path, settings: ExecutorConfig, device: Device) -> TensorRtEngine:
    """The engine of a directory that may be served; what steps need is allocated before the pools get the rest."""
    assert manifest.tensorrt is not None
    layout = KvLayout.of(manifest, manifest.tensorrt)
    contexts = EngineContexts(directory / engine_file(RANK), device)
    input_names(contexts.ports, layout.dims)  # refuses here what memory could not be sized by
    runner = StepRunner(contexts, manifest, layout, device, MAX_LAUNCHES)
    num_device_blocks = num_blocks(manifest, layout, settings, device.free_bytes)
    num_host_blocks = host_blocks(manifest, settings.host_cache_memory)
    pools = SlabPools(device, layout, num_device_blocks, num_host_blocks, MAX_LAUNCHES)
    return TensorRtEngine(manifest, layout, runner, pools)


def surroundings(device: Device) -> Surroundings:
    """What there is to serve an engine on, and with. Raises ConfigError where a package is missing."""
    return Surroundings(
        tensorrt_llm_version=package_version("tensorrt_llm"),
        tensorrt_version=package_version("tensorrt"),
        compute_capability=device.compute_capability,
        tp_size=1,
    )


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
