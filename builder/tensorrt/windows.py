"""Sliding windows of a TensorRT engine: its layers see all tokens, so none may be shorter than its sequences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jetway.builder.errors import CheckpointError, OptionError
from jetway.builder.model_config import ModelConfig
from jetway.builder.plan import Plan
from jetway.builder.windows import FULL, SLIDING, by_layer, shortest

DEFAULT_WINDOW = 4096  # what transformers takes where config.json has none
DEFAULT_FIRST_LAYER = 28  # and where Qwen's has no max_window_layers
ALWAYS = ("MistralForCausalLM",)
BY_SWITCH = ("Qwen2ForCausalLM", "Qwen3ForCausalLM")


def shortest_of(config: ModelConfig, fields: Mapping[str, Any], file: Path) -> int | None:
    """How many tokens the layer sees that sees fewest; None: all layers see all, or only transformers knows.

    `fields` are those of `file`, a config.json. Raises CheckpointError.
    """
    is_switched_on = config.architecture in BY_SWITCH and bool(fields.get("use_sliding_window", False))
    window = fields.get("sliding_window", DEFAULT_WINDOW)
    if window is None or not (is_switched_on or config.architecture in ALWAYS):
        return None
    first_layer = fields.get("max_window_layers", DEFAULT_FIRST_LAYER) if is_switched_on else 0
    if type(first_layer) is not int:
        raise CheckpointError(file, f"max_window_layers is {first_layer!r}, not an integer", "Download it again")
    layers = range(config.num_hidden_layers)
    layer_types = fields.get("layer_types") or [SLIDING if layer >= first_layer else FULL for layer in layers]
    return shortest(by_layer(layer_types, window, file))


def check(plan: Plan, window: int | None) -> None:
    """Raise OptionError where the engine's sequences are longer than a layer sees."""
    if window is not None and window < plan.max_seq_len:
        raise OptionError(
            f"--max-seq-len {plan.max_seq_len}: {plan.source.metadata_file} has layers that see {window} tokens, and a "
            "TensorRT engine's layers see all. Pass no more than that, or --engine openvino."
        )
