"""What an engine directory's manifest means to an executor: the sizes of its pools, and the engine as described."""

from importlib.metadata import version

from jetway.builder.manifest import Manifest
from jetway.runtime.config import ExecutorConfig
from jetway.runtime.errors import ConfigError
from jetway.scheduler.plan import EngineDescription


def device_blocks(manifest: Manifest, *, kv_cache_memory: int, num_device_blocks: int | None) -> int:
    """Blocks of the device pool: as many as fit, unless a number is given. Raises ConfigError when none fits."""
    count = num_device_blocks or kv_cache_memory // manifest.block_bytes
    if not count:
        least = manifest.block_bytes
        raise ConfigError(f"kv_cache_memory must hold one block of {least} bytes, not {kv_cache_memory}")
    return count


def host_blocks(manifest: Manifest, host_cache_memory: int) -> int:
    """Blocks of the host pool: as many as fit; there may be none."""
    return host_cache_memory // manifest.block_bytes


def as_configured(manifest: Manifest, settings: ExecutorConfig, *, kind: str) -> EngineDescription:
    """The engine with the pools and stages that the settings ask for. Raises ConfigError for what it cannot have."""
    return describe(
        manifest,
        kind=kind,
        num_device_blocks=device_blocks(
            manifest, kv_cache_memory=settings.main_memory_pool_bytes, num_device_blocks=settings.num_device_blocks
        ),
        num_host_blocks=host_blocks(manifest, settings.host_cache_memory),
        num_stages=num_stages(manifest, settings),
    )


def num_stages(manifest: Manifest, settings: ExecutorConfig) -> int:
    """Of the pipeline. Raises ConfigError for more than layers, or others than those that the engine was built for."""
    if settings.backend == "simulated":
        return settings.pp_size
    if manifest.tensorrt is None:
        if settings.pp_size > (most := manifest.num_hidden_layers):
            raise ConfigError(
                f"pp_size is {settings.pp_size}, but the engine has num_hidden_layers {most}; pass no more"
            )
        return settings.pp_size
    built = manifest.tensorrt.pp_size
    if settings.pp_size not in (1, built):
        raise ConfigError(
            f"pp_size is {settings.pp_size}, but the TensorRT engine was built with pp_size {built}; leave it out, "
            f"or build the engine with --pp-size {settings.pp_size}"
        )
    return built


def describe(
    manifest: Manifest, *, kind: str, num_device_blocks: int, num_host_blocks: int, num_stages: int
) -> EngineDescription:
    """The engine with pools of these sizes, and so many stages."""
    return EngineDescription(
        engine_id=manifest.engine_id,
        kind=kind,
        version=version("jetway-llm"),
        block_size=manifest.tokens_per_block,
        num_device_blocks=num_device_blocks,
        num_host_blocks=num_host_blocks,
        block_bytes=manifest.block_bytes,
        max_num_seqs=manifest.max_batch_size,
        max_num_batched_tokens=manifest.max_num_tokens,
        max_seq_len=manifest.max_seq_len,
        vocab_size=manifest.vocab_size,
        capabilities=("copy", "logprobs"),
        num_stages=num_stages,
    )
