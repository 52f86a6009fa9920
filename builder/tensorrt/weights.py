"""A Hugging Face checkpoint's tensors, read by rows and columns. Loads torch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from jetway.builder.errors import CheckpointError

from .tensors import EMBEDDING, HEAD, Part, RankTensor

ROWS_AT_A_TIME = 4096  # of the two matrices that are compared


class _Home(NamedTuple):
    file: Path
    name: str  # of the tensor there
    opened: Any  # safetensors has no type for it


class Weights:
    """The tensors of all files, which stay mapped and take no memory until they are read."""

    def __init__(self, homes: Mapping[str, _Home], dtype: torch.dtype) -> None:
        self._homes = homes
        self._dtype = dtype

    @classmethod
    @contextmanager
    def open(cls, files: Sequence[Path], names: Mapping[str, str], dtype: torch.dtype) -> Iterator["Weights"]:
        """Every tensor in `names` is read under the name there, and as `dtype`."""
        with ExitStack() as stack:
            homes: dict[str, _Home] = {}
            for file in files:
                opened = stack.enter_context(safe_open(file, framework="pt"))
                stored = opened.keys()
                homes |= {name: _Home(file, name, opened) for name in stored}
            yield cls({tensor: homes[name] for tensor, name in names.items()}, dtype)

    def check_tied(self) -> None:
        """Raise CheckpointError for an output head that is not the embedding, but is said to be."""
        embedding, head = self._homes[EMBEDDING], self._homes[HEAD]
        if head.name == embedding.name:
            return
        slices = [home.opened.get_slice(home.name) for home in (embedding, head)]
        for start in range(0, slices[0].get_shape()[0], ROWS_AT_A_TIME):
            ours, theirs = (each[start : start + ROWS_AT_A_TIME].float() for each in slices)
            if not torch.equal(ours, theirs):
                problem = f"tie_word_embeddings is true, but tensor {head.name} is not {embedding.name}"
                raise CheckpointError(head.file, problem, "Say false in config.json, or take the tensor out")

    def read(self, tensor: RankTensor) -> torch.Tensor:
        """One tensor of a rank. Raises CheckpointError for numbers that `dtype` does not have."""
        whole = torch.zeros(tensor.shape, dtype=self._dtype)
        row = 0
        for part in tensor.parts:
            whole[row : row + len(part.rows)] = self._read(part)
            row += len(part.rows)
        return whole

    def _read(self, part: Part) -> torch.Tensor:
        home = self._homes[part.tensor]
        rows = slice(part.rows.start, part.rows.stop)
        found = home.opened.get_slice(home.name)
        stored: torch.Tensor = (
            found[rows] if part.columns is None else found[rows, part.columns.start : part.columns.stop]
        )
        if not stored.is_floating_point():
            kind = str(stored.dtype).removeprefix("torch.")
            problem = f"tensor {home.name} is {kind}, not of floating point"
            raise CheckpointError(home.file, problem, "Use the unquantized checkpoint of this model")
        cast = stored.to(self._dtype)
        if not cast.isfinite().all():
            count = int((~cast.isfinite()).sum())
            name = str(self._dtype).removeprefix("torch.")
            remedy = "Pass --dtype bfloat16" if stored.isfinite().all() else "Download the checkpoint again"
            problem = f"tensor {home.name} has {count} elements that are infinite or not a number in {name}"
            raise CheckpointError(home.file, problem, remedy)
        return cast
