"""What config.json must say, and what an engine takes from it."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder.errors import CheckpointError, OptionError
from jetway.builder.model_config import ModelConfig, parse, resolve_max_seq_len

FILE = Path("model/config.json")
SUPPORTED = "Supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM."
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_scaling": None,
}


def make_config(**fields: Any) -> ModelConfig:
    return parse(LLAMA | fields, FILE)


def test_parse() -> None:
    assert make_config() == ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=49152,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_size=64,
        max_position_embeddings=8192,
        sliding_window=None,
    )


def test_heads_default_as_in_transformers() -> None:
    config = make_config(num_key_value_heads=None, head_dim=None)
    assert (config.num_key_value_heads, config.head_size) == (9, 64)


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({"architectures": ["MistralForCausalLM"]}, 4096),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, None),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 1024}, 1024),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 1024}, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 1024, "use_sliding_window": False}, None),
        ({"architectures": ["Qwen3ForCausalLM"], "sliding_window": 1024, "use_sliding_window": True}, 1024),
        ({"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": True}, 4096),
        ({"sliding_window": 1024}, None),  # Llama has none
    ],
)
def test_sliding_window(fields: dict[str, Any], window: int | None) -> None:
    assert make_config(**fields).sliding_window == window


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, f"architectures ['GPT2LMHeadModel'] is not supported. {SUPPORTED}"),
        ({"architectures": None}, f"architectures None is not supported. {SUPPORTED}"),
        ({"hidden_size": "576"}, "hidden_size is '576', not a positive integer. Download the checkpoint again."),
        ({"vocab_size": None}, "vocab_size is None, not a positive integer. Download the checkpoint again."),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not a positive integer. Download the checkpoint again."),
        (
            {"num_key_value_heads": 2},
            "num_attention_heads 9 is not a multiple of num_key_value_heads 2. Download the checkpoint again.",
        ),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "rope_scaling has rope_type 'dynamic', not supported. Supported are default, linear, llama3, yarn.",
        ),
        (
            {"rope_parameters": {"rope_type": "longrope"}},
            "rope_parameters has rope_type 'longrope', not supported. Supported are default, linear, llama3, yarn.",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "quantization_config has quant_method 'gptq'. Use the unquantized checkpoint of this model.",
        ),
    ],
)
def test_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        make_config(**fields)
    assert str(refused.value) == f"{FILE}: {message}"


def test_max_seq_len() -> None:
    assert resolve_max_seq_len(make_config(), None, FILE) == 8192
    assert resolve_max_seq_len(make_config(), 512, FILE) == 512


def test_max_seq_len_beyond_the_positions_is_refused() -> None:
    with pytest.raises(OptionError) as refused:
        resolve_max_seq_len(make_config(), 8193, FILE)
    expected = f"--max-seq-len 8193: {FILE} has max_position_embeddings 8192. Pass no more than that."
    assert str(refused.value) == expected


def test_max_seq_len_beyond_the_window_is_refused() -> None:
    """Also where it is the default: a window that does not act must be asked for."""
    config = make_config(architectures=["MistralForCausalLM"])
    with pytest.raises(OptionError) as refused:
        resolve_max_seq_len(config, None, FILE)
    assert str(refused.value) == (
        f"--max-seq-len 8192: {FILE} has sliding_window 4096, and engines without a window are built. "
        "Pass --max-seq-len 4096."
    )
    assert resolve_max_seq_len(config, 4096, FILE) == 4096
