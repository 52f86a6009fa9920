"""A file written tensor by tensor is read back by the library."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from jetway.builder.tensorrt import safetensors_file
from jetway.builder.tensorrt.safetensors_file import Entry

TENSORS = {
    "half": torch.arange(6, dtype=torch.float16).reshape(3, 2),
    "odd": torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16),
    "transposed": torch.arange(8, dtype=torch.float16).reshape(2, 4).T,
    "scale": torch.tensor([0.25]),
    "name that is longer than most": torch.zeros(0, 5),
}


def made(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def test_read_back(tmp_path: Path) -> None:
    entries = [
        Entry(name, tensor.dtype, tuple(tensor.shape), partial(made, tensor)) for name, tensor in TENSORS.items()
    ]
    path = tmp_path / "file.safetensors"
    safetensors_file.write(path, entries)
    found = load_file(path)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    with safe_open(path, framework="pt") as opened:
        assert opened.metadata() == {"format": "pt"}


def test_a_tensor_of_another_shape_is_our_mistake(tmp_path: Path) -> None:
    entry = Entry("half", torch.float16, (2, 3), partial(made, TENSORS["half"]))
    with pytest.raises(AssertionError):
        safetensors_file.write(tmp_path / "file.safetensors", [entry])
