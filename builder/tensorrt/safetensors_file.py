"""A safetensors file written tensor by tensor; the library's own writer wants all of them in memory."""

import json
import math
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch

DTYPE_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
ALIGNMENT = 8  # of the header's end


class Entry(NamedTuple):
    """One tensor of the file, to be made when its turn comes."""

    name: str
    dtype: torch.dtype  # of DTYPE_NAMES
    shape: tuple[int, ...]
    make: Callable[[], torch.Tensor]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write all entries, holding one at a time. Raises OSError."""
    ordered = sorted(entries, key=lambda entry: -entry.dtype.itemsize)  # so that each one is aligned
    with path.open("wb") as file:
        file.write(_header(ordered))
        for entry in ordered:
            tensor = entry.make()
            assert (tuple(tensor.shape), tensor.dtype) == (entry.shape, entry.dtype), entry
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def _header(entries: Iterable[Entry]) -> bytes:
    fields: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for entry in entries:
        end = start + entry.num_bytes
        fields[entry.name] = {"dtype": DTYPE_NAMES[entry.dtype], "shape": entry.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(fields).encode()
    padded = text + b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(padded)) + padded
