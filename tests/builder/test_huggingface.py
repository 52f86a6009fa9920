"""How far each layer sees, by transformers' own reading of a configuration."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from jetway.builder import huggingface
from jetway.builder.checkpoint import Checkpoint
from jetway.builder.errors import CheckpointError
from tests.support.checkpoints import MODEL_TYPES

CHECKPOINT = Checkpoint(directory=Path("model"), gguf_file=None, weights=(), files=())
SIZES = {"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 9}


def sliding_windows(architecture: str, **fields: Any) -> tuple[int | None, ...]:
    config = AutoConfig.for_model(MODEL_TYPES[architecture], **SIZES, **fields, pad_token_id=None)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # transformers leaves it so
    return huggingface.sliding_windows(model, CHECKPOINT)


@pytest.mark.parametrize(
    ("architecture", "fields", "windows"),
    [
        ("LlamaForCausalLM", {}, (None, None, None)),
        ("LlamaForCausalLM", {"sliding_window": 8}, (None, None, None)),  # means nothing there
        ("MistralForCausalLM", {}, (4096, 4096, 4096)),
        ("MistralForCausalLM", {"sliding_window": None}, (None, None, None)),
        ("Qwen2ForCausalLM", {"sliding_window": 8}, (None, None, None)),
        (
            "Qwen2ForCausalLM",
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2},
            (None, None, 8),
        ),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "max_window_layers": 0}, (4096, 4096, 4096)),
        ("GPT2LMHeadModel", {}, (None, None, None)),
        ("GemmaForCausalLM", {}, (None, None, None)),
        ("Gemma2ForCausalLM", {"sliding_window": 8}, (8, None, 8)),
        ("Gemma3ForCausalLM", {"sliding_window": 8, "sliding_window_pattern": 3}, (8, 8, None)),
        ("PhiForCausalLM", {}, (None, None, None)),
        ("Phi3ForCausalLM", {}, (None, None, None)),
        ("Phi3ForCausalLM", {"sliding_window": 2047}, (2047, 2047, 2047)),
    ],
)
def test_sliding_windows(architecture: str, fields: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert sliding_windows(architecture, **fields) == windows


@pytest.mark.parametrize("window", [None, 0, -1, 2**31])
def test_a_window_without_width_is_refused(window: int | None) -> None:
    """Also in a single layer."""
    layer_types = ["full_attention", "sliding_attention", "full_attention"]
    with pytest.raises(CheckpointError) as refused:
        sliding_windows("Gemma3ForCausalLM", layer_types=layer_types, sliding_window=window)
    assert str(refused.value) == (
        f"model/config.json: sliding_window is {window}, not a positive integer up to 2147483647. "
        "Download the checkpoint again."
    )


def test_other_kinds_of_layers_are_refused() -> None:
    layer_types = ["full_attention", "chunked_attention", "full_attention"]
    with pytest.raises(CheckpointError) as refused:
        sliding_windows("Qwen3ForCausalLM", layer_types=layer_types)
    assert str(refused.value) == (
        "model/config.json: layer_types has 'chunked_attention'. Supported are 'sliding_attention' and 'full_attention'."
    )
