"""Where a step's inputs lie on the device, and the page-locked memory that they get there from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jetway.runtime.executor.trt_tensors import INPUTS, Tensor, on_host

from .device import Device, Stream

if TYPE_CHECKING:
    import torch

ALIGNMENT = 256  # bytes, of every tensor


class InputBuffers:
    """Room for the inputs of one step, all of them one copy.

    One set is enough: a step's result means that the device is done with its inputs.
    """

    def __init__(self, device: Device, dims: Mapping[str, int]) -> None:
        """`dims`: the most that each named dimension of an input can be."""
        num_bytes = sum(_aligned(_most_bytes(name, dims)) for name in INPUTS if not on_host(name))
        self._staged = device.pinned_zeros(num_bytes)
        self._sent = device.zeros(num_bytes)

    def send(self, tensors: Mapping[str, Tensor], stream: Stream) -> "dict[str, torch.Tensor]":
        """The tensors on the device, once `stream` has come so far. The step before must be done."""
        import torch

        staged, places, end = self._staged.numpy(), dict[str, slice](), 0
        for name, tensor in tensors.items():
            places[name] = slice(end, end + tensor.nbytes)
            staged[places[name]] = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
            end += _aligned(tensor.nbytes)
        stream.copy(self._sent[:end], self._staged[:end])
        return {name: self._sent[place].view(torch.int32).view(tensors[name].shape) for name, place in places.items()}


def _most_bytes(name: str, dims: Mapping[str, int]) -> int:
    spec = INPUTS[name]
    sizes = [dims[dim] if isinstance(dim, str) else dim for dim in spec.dims]
    return int(np.prod(sizes)) * np.dtype(spec.dtype).itemsize


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
