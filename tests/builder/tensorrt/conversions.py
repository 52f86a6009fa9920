"""Conversions of tiny checkpoints, for tests."""

from pathlib import Path
from typing import Any

from jetway.builder.spec import OFFERS, BuildSpec
from jetway.builder.tensorrt import plan
from jetway.builder.tensorrt.convert import write_checkpoint
from jetway.builder.tensorrt.options import TensorRtOptions
from jetway.builder.tensorrt.plan import TensorRtPlan

OPTIONS = tuple(TensorRtOptions.__dataclass_fields__)


def make_spec(checkpoint: Path, **options: Any) -> BuildSpec:
    """`options` are BuildSpec's and TensorRtOptions'."""
    own = {name: options.pop(name) for name in OPTIONS if name in options}
    offer = OFFERS["tensorrt"]
    defaults: dict[str, Any] = {
        "dtype": offer.dtypes[0],
        "kv_cache_dtype": offer.kv_cache_dtypes[0],
        "max_batch_size": offer.max_batch_size,
        "max_num_tokens": offer.max_num_tokens,
    }
    return BuildSpec(
        model_dir=checkpoint,
        output_dir=checkpoint.parent / "engine",
        engine="tensorrt",
        tensorrt=TensorRtOptions(**own),
        **defaults | options,
    )


def make_plan(checkpoint: Path, **options: Any) -> TensorRtPlan:
    return plan.make(make_spec(checkpoint, **options))


def converted(checkpoint: Path, directory: Path, **options: Any) -> Path:
    """`directory`, with the TensorRT-LLM checkpoint."""
    planned = make_plan(checkpoint, **options)
    assert planned.decoder is not None
    directory.mkdir()
    write_checkpoint(planned, planned.decoder, directory, lambda words: None)
    return directory
