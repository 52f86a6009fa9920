"""What config.json must say, and what an engine takes from it."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder.errors import CheckpointError, OptionError
from jetway.builder.model_config import LengthLimit, ModelConfig, parse, resolve_max_seq_len

FILE = Path("model/config.json")
SUPPORTED = (
    "Supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, GPT2LMHeadModel, "
    "GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, PhiForCausalLM, Phi3ForCausalLM."
)
ROPES = "Supported are default, linear, dynamic, llama3, yarn, longrope."
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
        length_limit=LengthLimit("max_position_embeddings", 8192),
    )


def test_heads_default_as_in_transformers() -> None:
    config = make_config(num_key_value_heads=None, head_dim=None)
    assert (config.num_key_value_heads, config.head_size) == (9, 64)


def test_gpt2_has_names_of_its_own() -> None:
    fields = {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 50257,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 6,
        "n_positions": 1024,
        "num_key_value_heads": 3,  # means nothing there
    }
    assert parse(fields, FILE) == ModelConfig(
        architecture="GPT2LMHeadModel",
        vocab_size=50257,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_size=128,
        max_position_embeddings=1024,
        length_limit=LengthLimit("n_positions", 1024),
    )


PHI3: dict[str, Any] = {"architectures": ["Phi3ForCausalLM"], "max_position_embeddings": 131072}


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 2048}}, 2048),
        ({"rope_scaling": {"type": "longrope"}}, 8192),  # transformers takes max_position_embeddings
        ({"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 1024}, 1024),
        (PHI3 | {"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 8192}, 8192),
        (PHI3 | {"rope_scaling": {"type": "longrope"}}, 4096),
        (PHI3 | {"rope_scaling": None}, 131072),
    ],
)
def test_longrope_is_right_up_to_its_original_length(fields: dict[str, Any], tokens: int) -> None:
    config = make_config(**fields)
    assert config.length_limit.tokens == tokens
    assert resolve_max_seq_len(config, None, FILE) == tokens
    with pytest.raises(OptionError) as refused:
        resolve_max_seq_len(config, tokens + 1, FILE)
    assert str(refused.value) == (
        f"--max-seq-len {tokens + 1}: {FILE} has {config.length_limit.field} {tokens}. Pass no more than that."
    )


def test_gemma3_has_two_rotary_embeddings() -> None:
    gemma3 = {"architectures": ["Gemma3ForCausalLM"], "num_key_value_heads": 3}
    ropes = {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}
    assert make_config(**gemma3, rope_parameters=ropes).length_limit.tokens == 8192
    ropes["sliding_attention"] = {"rope_type": "wavy"}
    with pytest.raises(CheckpointError) as refused:
        make_config(**gemma3, rope_parameters=ropes)
    problem = "rope_parameters.sliding_attention has rope_type 'wavy', not supported"
    assert str(refused.value) == f"{FILE}: {problem}. {ROPES}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, f"architectures ['MambaForCausalLM'] is not supported. {SUPPORTED}"),
        ({"architectures": [[]]}, f"architectures [[]] is not supported. {SUPPORTED}"),
        ({"architectures": None}, f"architectures None is not supported. {SUPPORTED}"),
        ({"hidden_size": "576"}, "hidden_size is '576', not a positive integer. Download the checkpoint again."),
        ({"vocab_size": None}, "vocab_size is None, not a positive integer. Download the checkpoint again."),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not a positive integer. Download the checkpoint again."),
        (
            {"num_key_value_heads": 2},
            "num_attention_heads 9 is not a multiple of num_key_value_heads 2. Download the checkpoint again.",
        ),
        ({"rope_scaling": {"type": "su"}}, f"rope_scaling has rope_type 'su', not supported. {ROPES}"),
        ({"rope_parameters": "longrope"}, f"rope_parameters has rope_type 'longrope', not supported. {ROPES}"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1, not a positive integer. Download the checkpoint again."),
        (
            {"max_position_embeddings": 2**31},
            "max_position_embeddings is 2147483648, more than 2147483647. Download the checkpoint again.",
        ),
        (
            {"num_attention_heads": 1000, "num_key_value_heads": None, "head_dim": None},
            "head_dim is 0, not a positive integer. Download the checkpoint again.",
        ),
        (
            {"architectures": ["GemmaForCausalLM"], "head_dim": None},
            "head_dim is None, not a positive integer. Download the checkpoint again.",
        ),
        (
            {"architectures": ["Gemma2ForCausalLM"]},
            "attn_logit_softcapping is 50.0, which paged attention cannot compute. Build another model.",
        ),
        (
            {"is_causal": False},
            "is_causal is False, which paged attention cannot compute. Build another model.",
        ),
        (
            {"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": True},
            "use_bidirectional_attention is True, which paged attention cannot compute. Build another model.",
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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rms_norm_eps", float("inf")),
        ("rms_norm_eps", 0),
        ("rope_theta", 0),
        ("rope_theta", float("nan")),
        ("rope_theta", "1"),
    ],
)
def test_a_number_that_every_token_goes_through_is_positive_and_finite(field: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=f"{field} is {value!r}, not a positive finite number"):
        make_config(**{field: value})


def test_max_seq_len() -> None:
    assert resolve_max_seq_len(make_config(), None, FILE) == 8192
    assert resolve_max_seq_len(make_config(), 512, FILE) == 512


def test_max_seq_len_beyond_the_positions_is_refused() -> None:
    with pytest.raises(OptionError) as refused:
        resolve_max_seq_len(make_config(), 8193, FILE)
    expected = f"--max-seq-len 8193: {FILE} has max_position_embeddings 8192. Pass no more than that."
    assert str(refused.value) == expected
