"""The one door to transformers: a checkpoint's model and tokenizer, loaded offline and without running its code."""

from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerFast

from .checkpoint import Checkpoint
from .errors import CheckpointError

# What transformers raises over a file that it cannot use; it has no error of its own.
LOAD_ERRORS = (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError)


def load_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """The model in float32, whatever it is stored in. Raises CheckpointError unless every weight was found."""
    source: dict[str, Any] = {"use_safetensors": True}
    if checkpoint.gguf_file:
        source = {"gguf_file": checkpoint.gguf_file, "quantization_config": GgufConfig(dequantize=True)}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint.directory,
            dtype=torch.float32,
            attn_implementation="sdpa",
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **source,
        )
    except LOAD_ERRORS as error:
        raise CheckpointError(
            checkpoint.weights[0], f"transformers cannot load the model ({error})", "Download the checkpoint again"
        ) from error
    model: PreTrainedModel = loaded[0]
    report: dict[str, set[str]] = loaded[1]  # because of output_loading_info
    if absent := sorted(report["missing_keys"]):
        raise CheckpointError(
            checkpoint.weights[0],
            f"has no tensor {absent[0]} (of {len(absent)} that are missing)",
            "Download the checkpoint again",
        )
    return model


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerFast:
    """The tokenizer, in the form that can be written as tokenizer.json. Raises CheckpointError."""
    remedy = "Put the model's tokenizer.json beside its config.json"
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint.directory, gguf_file=checkpoint.gguf_file, trust_remote_code=False, local_files_only=True
        )
    except LOAD_ERRORS as error:
        problem = f"transformers cannot load the tokenizer ({error})"
        raise CheckpointError(checkpoint.directory, problem, remedy) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        problem = f"its tokenizer, {type(tokenizer).__name__}, has no tokenizer.json"
        raise CheckpointError(checkpoint.directory, problem, remedy)
    return tokenizer
