"""What a TensorRT build will make, settled before anything slow starts: without torch, tensorrt_llm or a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from jetway.builder import plan
from jetway.builder.errors import OptionError
from jetway.builder.manifest import DTYPE_BYTES
from jetway.builder.plan import QUANTIZED_BYTES, Plan
from jetway.builder.spec import BuildSpec

from . import decoder, exclusions, parallel, sources, tensors, windows
from .build_config import build_config
from .checkpoint_config import checkpoint_config, mapping, quantization
from .decoder import FAMILIES, Decoder
from .parallel import Rank

# What a checkpoint is stored in, by Hugging Face's name -> what an engine computes in.
ENGINE_DTYPES = {"float64": "float16", "float32": "float16", "float16": "float16", "bfloat16": "bfloat16"}
TIMING_CACHE_FILE = "timing.cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtPlan:
    """One build, with nothing left to `auto`."""

    plan: Plan
    decoder: Decoder | None  # None: TensorRT-LLM converts this model, or calibrates it
    stored_names: Mapping[str, str]  # of the decoder's tensors, in the checkpoint
    sliding_window: int | None  # what the layer sees that sees fewest; None: all, or TensorRT-LLM's conversion knows
    ranks: tuple[Rank, ...]

    @property
    def spec(self) -> BuildSpec:
        return self.plan.spec

    @property
    def logs_dir(self) -> Path:
        """What the workers say, and the timing cache; beside the engine, since a failed build leaves none."""
        return self.spec.output_dir.with_name(f"{self.spec.output_dir.name}.logs")

    @property
    def checkpoint_config(self) -> dict[str, Any]:
        """`config.json` of the TensorRT-LLM checkpoint; of another's conversion, what is settled of it."""
        if self.decoder is not None:
            return checkpoint_config(self.decoder, self.spec)
        settled = {"architecture": self.plan.config.architecture, "dtype": self.spec.dtype}
        return settled | {"mapping": mapping(self.spec), "quantization": quantization(self.spec)}

    @property
    def build_config(self) -> dict[str, Any]:
        return build_config(self.spec, self.plan.max_seq_len, self.logs_dir.absolute() / TIMING_CACHE_FILE)

    @property
    def checkpoint_bytes(self) -> int:
        """Of the converted checkpoint, whose weights are plain even where the engine's will be int8 or int4."""
        return sum(self._weights_bytes(rank, quantization=None) for rank in self.ranks)

    @property
    def engine_bytes(self) -> int:
        """Of all ranks' engines on disk, within a few percent."""
        return sum(self._weights_bytes(rank, self.spec.quantization) for rank in self.ranks)

    @property
    def rank_bytes(self) -> int:
        """Of the largest rank's weights in its engine."""
        return max(self._weights_bytes(rank, self.spec.quantization) for rank in self.ranks)

    def _weights_bytes(self, rank: Rank, quantization: str | None) -> int:
        """Counted tensor by tensor, since ranks share the layers and repeat the embedding; else an equal share."""
        plain = DTYPE_BYTES[self.spec.dtype]
        matrices = plain if quantization is None else QUANTIZED_BYTES[quantization]
        if self.decoder is None:
            return int(self.plan.num_parameters * matrices / len(self.ranks))
        table = tensors.of_rank(self.decoder, rank)
        return int(sum(prod(each.shape) * (matrices if each.is_layer_matrix else plain) for each in table))


def make(spec: BuildSpec) -> TensorRtPlan:
    """The plan for `spec`. Raises CheckpointError, and OptionError for what TensorRT-LLM cannot convert or split."""
    found = plan.make(spec)
    dtype = _dtype(spec, found)
    settled = replace(
        spec,
        dtype=dtype,
        kv_cache_dtype=dtype if spec.kv_cache_dtype == "auto" else spec.kv_cache_dtype,
        max_num_tokens=_max_num_tokens(spec, found.max_seq_len),
    )
    planned = replace(found, spec=settled)
    exclusions.check_conversion(planned.spec)
    parallel.check(spec.tensorrt, planned.config)
    parsed = _decoder(planned)
    return TensorRtPlan(
        plan=planned,
        decoder=parsed,
        stored_names={} if parsed is None else sources.resolve(parsed, planned.shapes, planned.source),
        sliding_window=windows.shortest_of(planned.config, planned.fields, planned.source.metadata_file),
        ranks=parallel.ranks(spec.tensorrt, planned.config.num_hidden_layers),
    )


def _dtype(spec: BuildSpec, found: Plan) -> str:
    if spec.dtype != "auto":
        return spec.dtype
    stored = found.fields.get("dtype", found.fields.get("torch_dtype"))  # transformers 5, and before
    return ENGINE_DTYPES.get(str(stored), "float16")


def _max_num_tokens(spec: BuildSpec, max_seq_len: int) -> int:
    """What TensorRT-LLM would cut the budget of a step to."""
    most = spec.max_batch_size * max_seq_len
    if most < spec.least_num_tokens:
        raise OptionError(
            f"--max-batch-size {spec.max_batch_size}: sequences of {max_seq_len} tokens make steps of no more than "
            f"{most}, and one block of prefill beside the decodes needs {spec.least_num_tokens}. Raise it."
        )
    return min(spec.max_num_tokens, most)


def _decoder(planned: Plan) -> Decoder | None:
    if planned.config.architecture not in FAMILIES or exclusions.is_calibrated(planned.spec):
        return None
    parsed = decoder.parse(planned.config, planned.fields, planned.source.metadata_file)
    parallel.check_columns(planned.spec.tensorrt.tp_size, parsed.intermediate_size)
    return parsed
