"""A TensorRtEngine on the stand-ins: everything of it but TensorRT and the GPU."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jetway.builder.manifest import engine_file, read
from jetway.runtime.config import ExecutorConfig
from jetway.runtime.executor.ranks import Ranks
from jetway.runtime.executor.tensorrt.device import Device
from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from jetway.runtime.executor.tensorrt.load import assemble
from tests.support.cuda_stand_in import StandInDevice
from tests.support.tensorrt_stand_in import PLAN
from tests.support.trt_interpreter import Sizes
from tests.support.trt_llama import Llama
from tests.support.trt_manifest import make_document, write_document


def block_bytes(model: Llama, sizes: Sizes) -> int:
    return 2 * 4 * model.num_layers * model.num_kv_heads * model.head_size * sizes.tokens_per_block


def make_device(model: Llama, sizes: Sizes, worker: ThreadPoolExecutor | None = None) -> StandInDevice:
    return StandInDevice(block_bytes(model, sizes), worker=worker)


def write_directory(directory: Path, model: Llama, sizes: Sizes, tp_size: int = 1, pp_size: int = 1) -> Path:
    """An engine directory that the stand-in for TensorRT can load; `model` is the whole."""
    files = {engine_file(rank): PLAN + bytes([rank]) for rank in range(tp_size * pp_size)}
    document = make_document(
        {
            "pretrained_config.dtype": "float32",
            "pretrained_config.vocab_size": model.vocab_size,
            "pretrained_config.num_hidden_layers": model.num_layers,
            "pretrained_config.num_attention_heads": model.num_heads,
            "pretrained_config.num_key_value_heads": model.num_kv_heads,
            "pretrained_config.head_size": model.head_size,
            "pretrained_config.mapping": {"world_size": len(files), "tp_size": tp_size, "pp_size": pp_size},
            "build_config.max_batch_size": sizes.max_batch_size,
            "build_config.max_num_tokens": sizes.max_num_tokens,
            "build_config.max_seq_len": sizes.max_seq_len,
            "build_config.plugin_config.tokens_per_block": sizes.tokens_per_block,
            "jetway.kv_cache_dtype": "float32",
            "jetway.tokens.eos_ids": [],
            "jetway.files": {name: len(plan) for name, plan in files.items()},
        }
    )
    write_document(document, directory)
    for name, plan in files.items():
        (directory / name).write_bytes(plan)
    return directory


def settings_of(model: Llama, sizes: Sizes, num_host_blocks: int) -> ExecutorConfig:
    return ExecutorConfig(
        num_device_blocks=sizes.num_blocks, host_cache_memory=num_host_blocks * block_bytes(model, sizes)
    )


def load_stand_in(
    directory: Path, settings: ExecutorConfig, device: Device, ranks: Ranks | None = None
) -> TensorRtEngine:
    return assemble(read(directory), directory, settings, device, ranks)
