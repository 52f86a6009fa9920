"""How far a model's layers see is read from config.json as transformers reads it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from jetway.builder.errors import CheckpointError
from jetway.builder.tensorrt import windows
from tests.builder.tensorrt.test_parallel import CONFIG
from tests.support.checkpoints import MODEL_TYPES

FILE = Path("model/config.json")


def shortest(architecture: str, fields: dict[str, Any]) -> int | None:
    return windows.shortest_of(replace(CONFIG, architecture=architecture), fields, FILE)


def transformers_shortest(architecture: str, fields: dict[str, Any]) -> int | None:
    """Of Mistral, whose layers are alike, and of Qwen, which has a list of them."""
    config = AutoConfig.for_model(MODEL_TYPES[architecture], num_hidden_layers=CONFIG.num_hidden_layers, **fields)
    layer_types = getattr(config, "layer_types", None) or ["sliding_attention"]
    return config.sliding_window if "sliding_attention" in layer_types else None


@pytest.mark.parametrize(
    ("architecture", "fields", "window"),
    [
        ("MistralForCausalLM", {}, 4096),
        ("MistralForCausalLM", {"sliding_window": 64}, 64),
        ("MistralForCausalLM", {"sliding_window": None}, None),
        ("Qwen2ForCausalLM", {"sliding_window": 64}, None),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": True}, None),  # from layer 28 on
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 6}, 64),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 7}, None),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "max_window_layers": 0}, 4096),
        (
            "Qwen3ForCausalLM",
            {
                "sliding_window": 64,
                "use_sliding_window": True,
                "layer_types": [*["full_attention"] * 6, "sliding_attention"],
            },
            64,
        ),
        ("LlamaForCausalLM", {"sliding_window": 64}, None),
    ],
)
def test_shortest(architecture: str, fields: dict[str, Any], window: int | None) -> None:
    assert shortest(architecture, fields) == window
    assert architecture == "LlamaForCausalLM" or transformers_shortest(architecture, fields) == window


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sliding_window": "64"}, "sliding_window is '64', not a positive integer up to 2147483647."),
        ({"sliding_window": 0}, "sliding_window is 0, not a positive integer up to 2147483647."),
        ({"layer_types": ["chunked_attention"]}, "layer_types has 'chunked_attention'. Supported are"),
        ({"max_window_layers": "all"}, "max_window_layers is 'all', not an integer."),
    ],
)
def test_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        shortest("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 0} | fields)
    assert str(refused.value).startswith(f"{FILE}: {problem}")
