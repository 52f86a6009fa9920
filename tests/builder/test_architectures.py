"""The table of architectures says of config.json what transformers does."""

from typing import Any

import pytest
from transformers import AutoConfig

from jetway.builder.architectures import ARCHITECTURES
from tests.support.checkpoints import MODEL_TYPES

SIZES = {"hidden_size": 96, "num_attention_heads": 6}


def defaults(architecture: str) -> Any:
    """What transformers takes for a config.json with these sizes only."""
    return AutoConfig.for_model(MODEL_TYPES[architecture], **SIZES, pad_token_id=None)


def test_each_is_tested() -> None:
    assert set(ARCHITECTURES) == set(MODEL_TYPES)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("field", "derived"), [("num_key_value_heads", 6), ("head_dim", 16)])
def test_required_are_the_fields_that_do_not_follow(architecture: str, field: str, derived: int) -> None:
    value = getattr(defaults(architecture), field, None)
    assert (field in ARCHITECTURES[architecture].required) == (value not in (None, derived))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_defaults_of_fixed_fields(architecture: str) -> None:
    config = defaults(architecture)
    for fixed in ARCHITECTURES[architecture].fixed:
        assert bool(getattr(config, fixed.field, fixed.default)) == bool(fixed.default)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_windows(architecture: str) -> None:
    assert ARCHITECTURES[architecture].has_window == hasattr(defaults(architecture), "sliding_window")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_names(architecture: str) -> None:
    """A field that has another name is reachable under Llama's name, too: transformers maps them."""
    config = defaults(architecture)
    for field, name in ARCHITECTURES[architecture].names.items():
        assert getattr(config, name) == getattr(config, field, config.num_attention_heads)
