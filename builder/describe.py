"""The manifest of an engine whose files are written."""

from typing import NamedTuple

from .manifest import Manifest, TensorRtBuild, Tokens
from .plan import Plan


class Built(NamedTuple):
    """What is known of an engine once it is built."""

    engine_id: str
    sliding_windows: tuple[int | None, ...]
    tokens: Tokens
    files: dict[str, int]
    built_with: dict[str, str]
    tensorrt: TensorRtBuild | None = None


def describe(plan: Plan, built: Built) -> Manifest:
    """What was planned and what came of it."""
    spec, config = plan.spec, plan.config
    return Manifest(
        engine=spec.engine,
        model_name=spec.output_dir.resolve().name,
        architecture=config.architecture,
        dtype=spec.dtype,
        quantization=spec.quantization,
        kv_cache_dtype=spec.kv_cache_dtype,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_size=config.head_size,
        max_position_embeddings=config.max_position_embeddings,
        tokens_per_block=spec.tokens_per_block,
        max_batch_size=spec.max_batch_size,
        max_num_tokens=spec.max_num_tokens,
        max_seq_len=plan.max_seq_len,
        **built._asdict(),
    )
