"""A Hugging Face checkpoint to a TensorRT-LLM one, without TensorRT-LLM and without a GPU. Loads torch."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from jetway.builder.checkpoint import CONFIG_FILE

from . import safetensors_file, tensors
from .decoder import Decoder
from .parallel import Rank
from .plan import TensorRtPlan
from .safetensors_file import Entry
from .weights import Weights


def weights_file(rank: int) -> str:
    """The name of a rank's weights in a TensorRT-LLM checkpoint."""
    return f"rank{rank}.safetensors"


def write_checkpoint(planned: TensorRtPlan, decoder: Decoder, directory: Path, say: Callable[[str], None]) -> None:
    """Write `config.json` and one file a rank, with one tensor in memory at a time. Raises CheckpointError, OSError."""
    dtype = getattr(torch, planned.spec.dtype)
    with Weights.open(planned.plan.source.weights, planned.stored_names, dtype) as weights:
        if decoder.has_tied_head:
            weights.check_tied()
        for rank in planned.ranks:
            table = tensors.of_rank(decoder, rank)
            entries = (Entry(tensor.name, dtype, tensor.shape, partial(weights.read, tensor)) for tensor in table)
            scales = _cache_scales(rank) if planned.spec.kv_cache_dtype == "fp8" else ()
            safetensors_file.write(directory / weights_file(rank.index), [*entries, *scales])
            say(f"rank {rank.index} of {len(planned.ranks)} written")
    text = json.dumps(planned.checkpoint_config, indent=2) + "\n"
    (directory / CONFIG_FILE).write_text(text, encoding="utf-8")


def _cache_scales(rank: Rank) -> Iterator[Entry]:
    """Of an fp8 cache, as TensorRT-LLM's own conversion has them where nothing was measured."""
    for local in range(len(rank.layers)):
        name = f"{tensors.LAYERS}{local}.attention.kv_cache_scaling_factor"
        yield Entry(name, torch.float32, (1,), partial(torch.ones, 1))
