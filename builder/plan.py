"""What a build will make, settled before anything slow or large starts, and without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import checkpoint, metadata, model_config
from .checkpoint import Checkpoint
from .errors import OptionError
from .manifest import DTYPE_BYTES, kv_bytes_per_head
from .model_config import ModelConfig
from .spec import BuildSpec

QUANTIZED_BYTES = {"int8": 1, "fp8": 1, "int4": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One build, with the checkpoint's own facts."""

    spec: BuildSpec
    source: Checkpoint
    fields: Mapping[str, Any]  # config.json as it stands
    config: ModelConfig
    num_parameters: int
    shapes: Mapping[str, tuple[int, ...]]  # of the checkpoint's tensors, by name
    max_seq_len: int

    @property
    def engine_bytes(self) -> int:
        """What the engine will take on disk, within a few percent."""
        quantization = self.spec.quantization
        each = QUANTIZED_BYTES[quantization] if quantization else DTYPE_BYTES[self.spec.dtype]
        return int(self.num_parameters * each)

    @property
    def block_bytes(self) -> int:
        """One block of KV over all layers, as the manifest of an OpenVINO engine will have it."""
        num_heads = self.config.num_hidden_layers * self.config.num_key_value_heads
        return num_heads * kv_bytes_per_head(
            self.spec.kv_cache_dtype, self.spec.tokens_per_block, self.config.head_size
        )


def make(spec: BuildSpec) -> Plan:
    """The plan for `spec`. Raises CheckpointError for a checkpoint that no engine can come of, OptionError."""
    source = checkpoint.find(spec.model_dir)
    file = source.metadata_file
    is_tensorrt = spec.engine == "tensorrt"
    if source.gguf_file:
        if is_tensorrt:
            raise OptionError(f"--engine tensorrt: {file} is GGUF. Build it from the model's safetensors.")
        from . import gguf  # here, since its package comes with the CPU engine

        found = gguf.read(file)
    else:
        found = metadata.read(source)
    config = model_config.parse(found.config, file, others=is_tensorrt)
    metadata.check_plausible(found, config, file)
    return Plan(
        spec=spec,
        source=source,
        fields=found.config,
        config=config,
        num_parameters=found.num_parameters,
        shapes=found.shapes,
        max_seq_len=model_config.resolve_max_seq_len(config, spec.max_seq_len, file),
    )
