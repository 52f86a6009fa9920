"""The last stage finds an engine that computes something else."""

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from jetway.builder import checkpoint, huggingface, openvino, verify
from jetway.builder.errors import VerifyError

PROMPT = [(7 * index) % 300 for index in range(50)]  # more than one block


@pytest.fixture
def model(tiny_checkpoint: Path) -> PreTrainedModel:
    return huggingface.load_model(checkpoint.find(tiny_checkpoint))


def test_agreement(tiny_engine: Path, model: PreTrainedModel) -> None:
    agreement = verify.check(openvino.compile_paged(tiny_engine / "model.xml"), model, PROMPT)
    assert agreement.num_tokens == 58
    assert agreement.max_difference < 1e-3


@pytest.mark.parametrize(
    "parameter",
    ["model.layers.1.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight", "lm_head.weight"],
)
def test_other_weights_are_found(tiny_engine: Path, model: PreTrainedModel, parameter: str) -> None:
    with torch.no_grad():
        model.get_parameter(parameter)[0, :] += 0.05
    with pytest.raises(VerifyError, match=r"tokens the engine continues with token \d+, the Hugging Face model with"):
        verify.check(openvino.compile_paged(tiny_engine / "model.xml"), model, PROMPT)


def test_not_a_number_is_found(tiny_engine: Path, model: PreTrainedModel) -> None:
    with torch.no_grad():
        model.get_parameter("lm_head.weight")[0, 0] = torch.nan
    with pytest.raises(VerifyError, match="differ by nan"):
        verify.check(openvino.compile_paged(tiny_engine / "model.xml"), model, PROMPT)
