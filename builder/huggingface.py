"""The one door to transformers: a checkpoint's model and tokenizer, loaded offline and without running its code."""

from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from . import metadata, windows
from .architectures import ARCHITECTURES, OTHER
from .checkpoint import Checkpoint
from .errors import CheckpointError, MachineError

AGAIN = "Download the checkpoint again"
# Constants that old versions of transformers saved with a model and new ones compute.
IGNORED_TENSORS = ("attn.masked_bias",)


class _Loaded(NamedTuple):
    model: PreTrainedModel
    missing: set[str]
    unexpected: set[str]
    mismatched: set[tuple[str, torch.Size, torch.Size]]  # name, shape in the file, shape in the model


def inspect_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """The model without its weights. Raises CheckpointError unless all its tensors are there, in their shapes.

    Needs accelerate, or raises MachineError. Reads the headers of safetensors only. For a GGUF file, which transformers can only read whole, see `load_model`.
    """
    if find_spec("accelerate") is None:
        raise MachineError(
            "transformers reads shapes without weights by accelerate. Install it: pip install accelerate"
        )
    loaded = _load(checkpoint, use_safetensors=True, device_map="meta", ignore_mismatched_sizes=True)
    _check_architecture(checkpoint, loaded.model)
    _check_none_missing(checkpoint, loaded)
    for name, found, wanted in sorted(loaded.mismatched):
        problem = f"tensor {name} has the shape {list(found)}, but {checkpoint.metadata_file.name} means {list(wanted)}"
        raise CheckpointError(metadata.locate(checkpoint, name), problem, AGAIN)
    for name in sorted(loaded.unexpected):
        if not name.endswith(IGNORED_TENSORS):
            problem = f"holds tensor {name}, for which the model of {checkpoint.metadata_file.name} has no place"
            raise CheckpointError(metadata.locate(checkpoint, name), problem, AGAIN)
    return loaded.model


def load_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """The model in float32, whatever it is stored in. Raises CheckpointError unless every weight is there, a number."""
    if checkpoint.gguf_file:
        from transformers import GgufConfig  # here, since transformers 4 has none

        as_floats = GgufConfig(dequantize=True)
        loaded = _load(checkpoint, gguf_file=checkpoint.gguf_file, quantization_config=as_floats)
    else:
        loaded = _load(checkpoint, use_safetensors=True)
    _check_none_missing(checkpoint, loaded)
    for name, parameter in loaded.model.named_parameters():
        if not parameter.isfinite().all():
            count = int((~parameter.isfinite()).sum())
            problem = f"tensor {name} has {count} elements that are infinite or not a number"
            raise CheckpointError(metadata.locate(checkpoint, name), problem, AGAIN)
    return loaded.model


def sliding_windows(model: PreTrainedModel, checkpoint: Checkpoint) -> tuple[int | None, ...]:
    """How many tokens a token of each layer sees, itself included; None: all before it. Raises CheckpointError."""
    config = model.config
    if not ARCHITECTURES.get(type(model).__name__, OTHER).has_window:
        return (None,) * int(config.num_hidden_layers)
    window: int | None = getattr(config, "sliding_window", None)
    kind = windows.FULL if window is None else windows.SLIDING
    layer_types = getattr(config, "layer_types", None) or [kind] * config.num_hidden_layers
    return windows.by_layer(layer_types, window, checkpoint.metadata_file)


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerFast:
    """The tokenizer, in the form that can be written as tokenizer.json. Raises CheckpointError."""
    remedy = "Put the model's tokenizer.json beside its config.json"
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint.directory, gguf_file=checkpoint.gguf_file, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # transformers has no error of its own
        problem = f"transformers cannot load the tokenizer ({error})"
        raise CheckpointError(checkpoint.directory, problem, remedy) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        problem = f"its tokenizer, {type(tokenizer).__name__}, has no tokenizer.json"
        raise CheckpointError(checkpoint.directory, problem, remedy)
    return tokenizer


def _load(checkpoint: Checkpoint, **options: Any) -> _Loaded:
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint.directory,
            dtype=torch.float32,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    except Exception as error:  # transformers has no error of its own
        problem = f"transformers cannot load the model ({error})"
        raise CheckpointError(checkpoint.metadata_file, problem, AGAIN) from error
    model, report = loaded  # because of output_loading_info
    return _Loaded(model, report["missing_keys"], report["unexpected_keys"], report["mismatched_keys"])


def _check_architecture(checkpoint: Checkpoint, model: PreTrainedModel) -> None:
    """transformers goes by model_type, and all else here by architectures."""
    if (found := type(model).__name__) not in (named := model.config.architectures or []):
        problem = f"architectures is {named}, but model_type {model.config.model_type!r} is that of {found}"
        raise CheckpointError(checkpoint.metadata_file, problem, AGAIN)


def _check_none_missing(checkpoint: Checkpoint, loaded: _Loaded) -> None:
    if absent := sorted(loaded.missing):
        problem = f"has no tensor {absent[0]} (of {len(absent)} that are missing)"
        raise CheckpointError(checkpoint.weights_file, problem, AGAIN)
