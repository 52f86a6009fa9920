"""What a build will make, settled before anything slow or large starts, and without torch."""

from dataclasses import dataclass

from . import checkpoint, gguf, metadata, model_config
from .checkpoint import Checkpoint
from .manifest import kv_bytes_per_head
from .model_config import ModelConfig
from .spec import BuildSpec

BYTES_PER_PARAMETER = {None: 4, "int8": 1}  # by quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One build, with the checkpoint's own facts."""

    spec: BuildSpec
    source: Checkpoint
    config: ModelConfig
    num_parameters: int
    max_seq_len: int

    @property
    def engine_bytes(self) -> int:
        """What the engine will take on disk, within a few percent."""
        return self.num_parameters * BYTES_PER_PARAMETER[self.spec.quantization]

    @property
    def block_bytes(self) -> int:
        """One block of KV over all layers, as the manifest will have it."""
        num_heads = self.config.num_hidden_layers * self.config.num_key_value_heads
        return num_heads * kv_bytes_per_head(
            self.spec.kv_cache_dtype, self.spec.tokens_per_block, self.config.head_size
        )


def make(spec: BuildSpec) -> Plan:
    """The plan for `spec`. Raises CheckpointError for a checkpoint that no engine can come of, OptionError."""
    source = checkpoint.find(spec.model_dir)
    file = source.metadata_file
    found = gguf.read(file) if source.gguf_file else metadata.read(source)
    config = model_config.parse(found.config, file)
    metadata.check_plausible(found, config, file)
    return Plan(
        spec=spec,
        source=source,
        config=config,
        num_parameters=found.num_parameters,
        max_seq_len=model_config.resolve_max_seq_len(config, spec.max_seq_len, file),
    )
