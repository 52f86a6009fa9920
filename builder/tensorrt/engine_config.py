"""What TensorRT-LLM writes beside its engines (contracts/tensorrt-llm.md, 2.6), and which of it can be served."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jetway.builder.errors import ConversionError
from jetway.builder.fields import Fields

from . import served

# What TensorRT-LLM turns off with no more than a warning, or cuts; the executor depends on each.
KEPT = (
    *("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width", "kv_cache_type"),
    *("gather_context_logits", "weight_streaming", "use_refit", "use_strip_plan"),
)
KEPT_PLUGINS = (
    *("gpt_attention_plugin", "remove_input_padding", "tokens_per_block", "use_paged_context_fmha"),
    *("manage_weights", "streamingllm"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtBuild:
    """How a TensorRT engine was built, as far as serving depends on it."""

    tensorrt_llm_version: str  # with tensorrt_version: of the libraries that alone can load it
    tensorrt_version: str
    compute_capability: str  # of the only GPUs that it runs on, for example "9.0"
    tp_size: int
    pp_size: int
    logits_dtype: str

    @property
    def num_ranks(self) -> int:
        return self.tp_size * self.pp_size


def engine_file(rank: int) -> str:
    """The name of a rank's engine."""
    return f"rank{rank}.engine"


def stage_layers(num_layers: int, pp_size: int) -> tuple[range, ...]:
    """The model's layers by stage. Stages differ by one layer at most, and the first ones have it."""
    each, more = divmod(num_layers, pp_size)
    starts = [stage * each + min(stage, more) for stage in range(pp_size + 1)]
    return tuple(range(first, end) for first, end in pairwise(starts))


def read_build(fields: Fields) -> TensorRtBuild:
    """How the engine of this `config.json` was built. Raises ManifestError for one that cannot be driven by steps."""
    served.check(fields)
    build = TensorRtBuild(
        tensorrt_llm_version=fields.text("version"),
        tensorrt_version=fields.text("jetway.built_with.tensorrt"),
        compute_capability=fields.text("jetway.compute_capability"),
        tp_size=fields.integer("pretrained_config.mapping.tp_size"),
        pp_size=fields.integer("pretrained_config.mapping.pp_size"),
        logits_dtype=fields.text("pretrained_config.logits_dtype"),
    )
    files = fields.table("jetway.files", int)
    for rank in range(build.num_ranks):
        if engine_file(rank) not in files:
            sizes = f"tp_size {build.tp_size} and pp_size {build.pp_size} mean a {engine_file(rank)}"
            raise fields.error("jetway.files", sorted(files), sizes)
    return build


def check_as_asked(fields: Fields, asked: Mapping[str, Any]) -> None:
    """Raise ConversionError for an engine that was built otherwise than `asked`, a `BuildConfig`'s arguments."""
    flat = {**asked, **{f"plugin_config.{name}": value for name, value in asked["plugin_config"].items()}}
    for name in (*KEPT, *(f"plugin_config.{name}" for name in KEPT_PLUGINS)):
        found = fields.optional(f"build_config.{name}")
        if _kept(name, found) != _kept(name, flat[name]):
            raise ConversionError(
                f"TensorRT-LLM was asked for {name} {flat[name]} and built {found}. The logs have its reason."
            )


def _kept(name: str, value: object) -> object:
    """What counts of a value: "auto" becomes a type where it is read, and versions differ in case."""
    if name.endswith("_plugin"):
        return bool(value)
    return value.lower() if isinstance(value, str) else value
