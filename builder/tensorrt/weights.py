"""A Hugging Face checkpoint's tensors, read by rows and columns. Loads torch."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from jetway.builder.errors import CheckpointError

from .tensors import Part, RankTensor


class _Home(NamedTuple):
    file: Path
    opened: Any  # safetensors has no type for it


class Weights:
    """The tensors of all files, which stay mapped and take no memory until they are read."""

    def __init__(self, homes: dict[str, _Home], dtype: torch.dtype) -> None:
        self._homes = homes
        self._dtype = dtype

    @classmethod
    @contextmanager
    def open(cls, files: Sequence[Path], dtype: torch.dtype) -> Iterator["Weights"]:
        """All that is read has `dtype`."""
        with ExitStack() as stack:
            homes: dict[str, _Home] = {}
            for file in files:
                opened = stack.enter_context(safe_open(file, framework="pt"))
                names = opened.keys()
                homes |= {name: _Home(file, opened) for name in names}
            yield cls(homes, dtype)

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._homes

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
        found = home.opened.get_slice(part.tensor)
        stored: torch.Tensor = (
            found[rows] if part.columns is None else found[rows, part.columns.start : part.columns.stop]
        )
        cast = stored.to(self._dtype)
        if not cast.isfinite().all():
            count = int((~cast.isfinite()).sum())
            name = str(self._dtype).removeprefix("torch.")
            remedy = "Pass --dtype bfloat16" if stored.isfinite().all() else "Download the checkpoint again"
            problem = f"tensor {part.tensor} has {count} elements that are infinite or not a number in {name}"
            raise CheckpointError(home.file, problem, remedy)
        return cast
