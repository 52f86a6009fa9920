"""A TensorRtEngine on the stand-ins: everything of it but TensorRT and the GPU."""

from pathlib import Path

from jetway.builder.manifest import read
from jetway.runtime.config import ExecutorConfig
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


def make_device(model: Llama, sizes: Sizes) -> StandInDevice:
    return StandInDevice(block_bytes(model, sizes))


def write_directory(directory: Path, model: Llama, sizes: Sizes) -> Path:
    """An engine directory that the stand-in for TensorRT can load."""
    document = make_document(
        {
            "pretrained_config.dtype": "float32",
            "pretrained_config.vocab_size": model.vocab_size,
            "pretrained_config.num_hidden_layers": model.num_layers,
            "pretrained_config.num_attention_heads": model.num_heads,
            "pretrained_config.num_key_value_heads": model.num_kv_heads,
            "pretrained_config.head_size": model.head_size,
            "pretrained_config.mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
            "build_config.max_batch_size": sizes.max_batch_size,
            "build_config.max_num_tokens": sizes.max_num_tokens,
            "build_config.max_seq_len": sizes.max_seq_len,
            "build_config.plugin_config.tokens_per_block": sizes.tokens_per_block,
            "jetway.kv_cache_dtype": "float32",
            "jetway.tokens.eos_ids": [],
            "jetway.files": {"rank0.engine": len(PLAN)},
        }
    )
    write_document(document, directory)
    (directory / "rank0.engine").write_bytes(PLAN)
    return directory


def settings_of(model: Llama, sizes: Sizes, num_host_blocks: int) -> ExecutorConfig:
    return ExecutorConfig(
        num_device_blocks=sizes.num_blocks, host_cache_memory=num_host_blocks * block_bytes(model, sizes)
    )


def load_stand_in(directory: Path, settings: ExecutorConfig, device: Device) -> TensorRtEngine:
    return assemble(read(directory), directory, settings, device)
