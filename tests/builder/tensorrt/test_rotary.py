"""Rotary embeddings of transformers 4 and 5 in TensorRT-LLM's words; what they compute, `test_convert` shows."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder.errors import CheckpointError
from jetway.builder.tensorrt.rotary import parse_rotary
from tests.builder.tensorrt.test_parallel import CONFIG

FILE = Path("model/config.json")
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
AS_LLAMA3 = {"type": "llama3", "rope_type": "llama3", **LLAMA3}


@pytest.mark.parametrize(
    ("fields", "base", "scaling"),
    [
        ({}, 10000.0, None),
        ({"rope_theta": 500000, "rope_scaling": None}, 500000.0, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6, None),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 5e5, AS_LLAMA3),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}, 5e5, AS_LLAMA3),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            10000.0,
            {"type": "linear", "rope_type": "linear", "factor": 2.0},
        ),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 10000.0, None),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            10000.0,
            {"type": "yarn", "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
        ),
    ],
)
def test_parse(fields: dict[str, Any], base: float, scaling: dict[str, Any] | None) -> None:
    assert parse_rotary(CONFIG, fields, FILE) == (base, scaling)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"rope_scaling": {"rope_type": "longrope"}},
            (
                "has a rotary embedding of rope_type 'longrope' and partial_rotary_factor 1.0, which Jetway does not "
                "convert"
            ),
        ),
        (
            {"partial_rotary_factor": 0.5},
            (
                "has a rotary embedding of rope_type 'default' and partial_rotary_factor 0.5, which Jetway does not "
                "convert"
            ),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 0.7}},
            "its yarn has mscale, which Jetway does not convert",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            "has a rotary embedding for full_attention, and another for other layers, which Jetway does not convert",
        ),
    ],
)
def test_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse_rotary(CONFIG, fields, FILE)
    assert str(refused.value) == f"model/config.json: {problem}. Build it with --engine openvino."


@pytest.mark.parametrize("base", [0, -1.0, float("nan"), float("inf"), None, "10000", True])
def test_a_base_that_is_none(base: object) -> None:
    for fields in ({"rope_parameters": {"rope_theta": base}}, {"rope_theta": base}):
        with pytest.raises(CheckpointError, match="rope_theta is .*, not a positive finite number"):
            parse_rotary(CONFIG, fields, FILE)


@pytest.mark.parametrize("factor", [0, -8.0, float("nan"), None, "2"])
@pytest.mark.parametrize(
    ("rope_type", "name"),
    [
        ("linear", "factor"),
        ("llama3", "factor"),
        ("llama3", "low_freq_factor"),
        ("llama3", "original_max_position_embeddings"),
        ("yarn", "factor"),
    ],
)
def test_a_factor_that_is_none(rope_type: str, name: str, factor: object) -> None:
    fields = {"rope_scaling": {**LLAMA3, "rope_type": rope_type, name: factor}}
    with pytest.raises(CheckpointError, match=f"{rope_type}'s {name} is .*, not a positive finite number"):
        parse_rotary(CONFIG, fields, FILE)


def test_frequencies_of_llama3_that_do_not_part() -> None:
    fields = {"rope_scaling": {**LLAMA3, "rope_type": "llama3", "high_freq_factor": 1.0}}
    with pytest.raises(CheckpointError, match="low_freq_factor is 1.0, not below its high_freq_factor 1.0"):
        parse_rotary(CONFIG, fields, FILE)


def test_what_transformers_does_not_read_is_not_handed_on() -> None:
    fields = {"rope_scaling": {"type": "linear", "factor": 2.0, "finetuned": float("nan")}}
    assert parse_rotary(CONFIG, fields, FILE).scaling == {"type": "linear", "rope_type": "linear", "factor": 2.0}
