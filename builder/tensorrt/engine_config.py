"""What TensorRT-LLM writes beside its engines (contracts/tensorrt-llm.md, 2.6), and which of it can be served."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetway.builder.errors import ConversionError
from jetway.builder.fields import Fields

LARGEST_INT32 = 2**31 - 1
# What TensorRT-LLM turns off with no more than a warning, or cuts; the executor depends on each.
KEPT_LIMITS = ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width")
KEPT_PLUGINS = ("remove_input_padding", "tokens_per_block", "use_paged_context_fmha", "manage_weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtBuild:
    """How a TensorRT engine was built, as far as serving depends on it."""

    tensorrt_llm_version: str  # with tensorrt_version: of the libraries that alone can load it
    tensorrt_version: str
    compute_capability: str  # of the only GPUs that it runs on, for example "9.0"
    tp_size: int
    pp_size: int
    logits_dtype: str


def engine_file(rank: int) -> str:
    """The name of a rank's engine."""
    return f"rank{rank}.engine"


def read_build(fields: Fields) -> TensorRtBuild:
    """How the engine of this `config.json` was built. Raises ManifestError for one that cannot be driven by steps."""
    _check_steps(fields)
    _check_limits(fields)
    build = TensorRtBuild(
        tensorrt_llm_version=fields.text("version"),
        tensorrt_version=fields.text("jetway.built_with.tensorrt"),
        compute_capability=fields.text("jetway.compute_capability"),
        tp_size=fields.integer("pretrained_config.mapping.tp_size"),
        pp_size=fields.integer("pretrained_config.mapping.pp_size"),
        logits_dtype=fields.text("pretrained_config.logits_dtype"),
    )
    files = fields.table("jetway.files", int)
    for rank in range(build.tp_size * build.pp_size):
        if engine_file(rank) not in files:
            sizes = f"tp_size {build.tp_size} and pp_size {build.pp_size} mean a {engine_file(rank)}"
            raise fields.error("jetway.files", sorted(files), sizes)
    return build


def check_as_asked(fields: Fields, asked: Mapping[str, Any]) -> None:
    """Raise ConversionError for an engine that was built otherwise than `asked`, a `BuildConfig`'s arguments."""
    names = [*KEPT_LIMITS, *(f"plugin_config.{name}" for name in KEPT_PLUGINS)]
    flat = {**asked, **{f"plugin_config.{name}": value for name, value in asked["plugin_config"].items()}}
    for name in names:
        if (found := fields.value(f"build_config.{name}")) != flat[name]:
            raise ConversionError(
                f"TensorRT-LLM was asked for {name} {flat[name]} and built {found}. The logs have its reason."
            )


def _check_steps(fields: Fields) -> None:
    kv_cache_type = fields.text("build_config.kv_cache_type")
    if kv_cache_type.lower() != "paged":  # versions differ in case
        raise fields.error("build_config.kv_cache_type", kv_cache_type, "steps need a paged cache")
    plugins = "build_config.plugin_config"
    if fields.value(f"{plugins}.gpt_attention_plugin") is None:
        raise fields.error(f"{plugins}.gpt_attention_plugin", None, "steps need this plugin")
    for name, why in (
        (f"{plugins}.remove_input_padding", "steps are packed, so it must be true"),
        (f"{plugins}.use_paged_context_fmha", "without it a chunk of a prompt would not see those before it"),
    ):
        if not fields.flag(name):
            raise fields.error(name, False, why)
    for name, why in (
        (f"{plugins}.manage_weights", "the weights must be inside the engine"),
        ("build_config.weight_streaming", "the weights must be inside the engine"),
        ("build_config.gather_context_logits", "steps have one row of logits a sequence"),
    ):
        if fields.optional(name):
            raise fields.error(name, True, why)


def _check_limits(fields: Fields) -> None:
    tokens_per_block = fields.integer("build_config.plugin_config.tokens_per_block")
    if not is_power_of_two(tokens_per_block):
        raise fields.error("build_config.plugin_config.tokens_per_block", tokens_per_block, "it must be a power of two")
    max_batch_size, max_seq_len = (
        fields.integer("build_config.max_batch_size"),
        fields.integer("build_config.max_seq_len"),
    )
    if not is_block_table_indexable(max_batch_size, -(-max_seq_len // tokens_per_block)):
        raise fields.error("build_config.max_batch_size", max_batch_size, "its block table exceeds 32 bits")
    least_tokens = max_batch_size + tokens_per_block
    if (max_num_tokens := fields.integer("build_config.max_num_tokens")) < least_tokens:
        why = f"max_batch_size decodes and one block of prefill need {least_tokens}"
        raise fields.error("build_config.max_num_tokens", max_num_tokens, why)
    positions = fields.integer("pretrained_config.max_position_embeddings")
    if max_seq_len > positions:
        raise fields.error("build_config.max_seq_len", max_seq_len, f"its RoPE table has {positions} rows")


def is_block_table_indexable(max_batch_size: int, max_blocks_per_seq: int) -> bool:
    """Whether an int32 reaches all keys of a step's table, [max_batch_size, 2, max_blocks_per_seq]."""
    return ((max_batch_size - 1) * 2 + 1) * max_blocks_per_seq <= LARGEST_INT32


def is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
