"""A model is made of all tensors of its checkpoint, under the names that they have there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file

from jetway.builder.errors import CheckpointError
from tests.builder.damage import with_config, with_weights
from tests.builder.tensorrt.conversions import converted, make_plan
from tests.support.checkpoints import make_checkpoint

Weights = dict[str, NDArray[Any]]
AGAIN = "Download the checkpoint again."
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
BIAS = "model.layers.0.self_attn.k_proj.bias"


def rename(weights: Weights, name: Callable[[str], str]) -> None:
    for old in list(weights):
        weights[name(old)] = weights.pop(old)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda weights: weights.pop(HEAD), f"has no tensor {HEAD} (of 1 that are missing). {AGAIN}"),
        (
            lambda weights: weights.update({BIAS: np.ones(32, np.float32)}),
            f"holds tensor {BIAS}, for which the model of config.json has no place. {AGAIN}",
        ),
        (
            lambda weights: weights.update({"model.norm.weight": np.ones(65, np.float32)}),
            f"tensor model.norm.weight has the shape [65], but config.json means [64]. {AGAIN}",
        ),
    ],
)
def test_other_tensors_are_refused(checkpoint: Path, change: Callable[[Weights], object], problem: str) -> None:
    with_weights(change)(checkpoint)
    with pytest.raises(CheckpointError) as refused:
        make_plan(checkpoint)
    assert str(refused.value) == f"{checkpoint / 'model.safetensors'}: {problem}"


@pytest.mark.parametrize("stored", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_a_model_under_another_name_is_refused(tmp_path: Path, stored: str) -> None:
    """Also where model_type says the same: its biases, or its norms, would be left out."""
    source = make_checkpoint(tmp_path / "source", stored, {}, chat_template=None)
    with_config(architectures=["LlamaForCausalLM"])(source)
    with pytest.raises(CheckpointError, match=r"model_type is 'qwen\d', but LlamaForCausalLM is of 'llama'"):
        make_plan(source)
    with_config(model_type="llama")(source)
    with pytest.raises(CheckpointError, match=r"holds tensor model\.layers\.0\.self_attn\.k_(proj\.bias|norm\.weight)"):
        make_plan(source)


def test_constants_that_old_versions_saved_are_left_out(checkpoint: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    with_weights(lambda weights: weights.update({name: np.ones(8, np.float32)}))(checkpoint)
    assert name not in make_plan(checkpoint).stored_names.values()


def assert_same_conversion(one: Path, other: Path, directory: Path) -> None:
    found = [load_file(converted(each, directory / each.name) / "rank0.safetensors") for each in (one, other)]
    assert found[0].keys() == found[1].keys()
    assert all(tensor.equal(found[1][name]) for name, tensor in found[0].items())


def test_the_models_prefix_may_be_left_out(tiny_checkpoint: Path, checkpoint: Path, tmp_path: Path) -> None:
    with_weights(lambda weights: rename(weights, lambda name: name.removeprefix("model.")))(checkpoint)
    (ranks := tmp_path / "ranks").mkdir()
    assert_same_conversion(tiny_checkpoint, checkpoint, ranks)


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "tied", "LlamaForCausalLM", {"tie_word_embeddings": True}, chat_template=None)


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: rename(weights, lambda name: HEAD if name == EMBEDDING else name),
        lambda weights: weights.update({HEAD: weights[EMBEDDING]}),
    ],
    ids=["head-alone", "both"],
)
def test_tied_matrices_may_have_either_name(tied: Path, tmp_path: Path, change: Callable[[Weights], object]) -> None:
    (tmp_path / "other").mkdir()
    other = make_checkpoint(
        tmp_path / "other" / "model", "LlamaForCausalLM", {"tie_word_embeddings": True}, chat_template=None
    )
    with_weights(change)(other)
    (ranks := tmp_path / "ranks").mkdir()
    assert_same_conversion(tied, other, ranks)


def test_tied_matrices_that_differ_are_refused(tied: Path, tmp_path: Path) -> None:
    """Versions of transformers take one or the other."""
    with_weights(lambda weights: weights.update({HEAD: weights[EMBEDDING] + 1}))(tied)
    with pytest.raises(CheckpointError) as refused:
        converted(tied, tmp_path / "ranks")
    assert str(refused.value) == (
        f"{tied / 'model.safetensors'}: tie_word_embeddings is true, but tensor {HEAD} is not {EMBEDDING}. Say false in "
        "config.json, or take the tensor out."
    )


def test_whole_numbers_are_no_biases(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "Qwen2ForCausalLM", {}, chat_template=None)
    with_weights(lambda weights: weights.update({BIAS: np.ones(32, np.int64)}))(source)
    with pytest.raises(CheckpointError, match=rf"tensor {BIAS} is int64, not of floating point\. Use the unquantized"):
        converted(source, tmp_path / "ranks")
