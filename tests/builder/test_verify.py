"""The last stage finds an engine that computes something else."""

from pathlib import Path

import openvino as ov
import pytest
import torch
from transformers import PreTrainedModel

from jetway.builder import checkpoint, huggingface, openvino, verify
from jetway.builder.errors import VerifyError

PROMPT = [(7 * index) % 300 for index in range(50)]  # more than one block


@pytest.fixture
def model(tiny_checkpoint: Path) -> PreTrainedModel:
    return huggingface.load_model(checkpoint.find(tiny_checkpoint))


def compiled(engine: Path, kv_cache_dtype: str = "f32") -> ov.CompiledModel:
    return openvino.compile_paged(engine / "model.xml", kv_cache_dtype, ())


@pytest.mark.parametrize("length", [1, 5, 32, 39, 50])
def test_agreement(tiny_engine: Path, model: PreTrainedModel, length: int) -> None:
    """Of prompts shorter and longer than a block, and than what is computed token by token."""
    agreement = verify.check(compiled(tiny_engine), model, PROMPT[:length], lossy=False)
    assert agreement.num_tokens == length
    assert agreement.difference < 1e-5


def test_lossy_cache_is_near(tiny_engine: Path, model: PreTrainedModel) -> None:
    engine = compiled(tiny_engine, "u8")
    assert 1e-4 < verify.check(engine, model, PROMPT, lossy=True).difference < 0.1
    with pytest.raises(VerifyError):
        verify.check(engine, model, PROMPT, lossy=False)


@pytest.mark.parametrize(
    "parameter",
    ["model.layers.1.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight", "lm_head.weight"],
)
def test_other_weights_are_found(tiny_engine: Path, model: PreTrainedModel, parameter: str) -> None:
    with torch.no_grad():
        model.get_parameter(parameter)[0, :] += 0.05
    with pytest.raises(VerifyError, match=r"tokens the engine continues with token \d+, the Hugging Face model with"):
        verify.check(compiled(tiny_engine), model, PROMPT, lossy=False)


@pytest.mark.parametrize("projection", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_another_attention_is_found_behind_a_lossy_cache(
    tiny_engine: Path, model: PreTrainedModel, projection: str
) -> None:
    """Rows in another order, as of a wrong rotation or a wrong layout, in one layer."""
    weight = model.get_parameter(f"model.layers.0.self_attn.{projection}.weight")
    with torch.no_grad():
        weight.copy_(weight.flip(0))
    with pytest.raises(VerifyError, match=r"allowed are 0.25"):
        verify.check(compiled(tiny_engine, "u8"), model, PROMPT, lossy=True)


@pytest.mark.parametrize("lossy", [False, True])
def test_not_a_number_is_found(tiny_engine: Path, model: PreTrainedModel, lossy: bool) -> None:
    with torch.no_grad():
        model.get_parameter("lm_head.weight")[0, 0] = torch.nan
    with pytest.raises(VerifyError, match="differ by nan"):
        verify.check(compiled(tiny_engine), model, PROMPT, lossy=lossy)


def test_a_model_that_hugging_face_cannot_compute_is_named(tiny_engine: Path, model: PreTrainedModel) -> None:
    model.lm_head = torch.nn.Linear(7, 300)
    with pytest.raises(VerifyError, match="Hugging Face cannot compute this model: mat1 and mat2 shapes cannot be"):
        verify.check(compiled(tiny_engine), model, PROMPT, lossy=False)
