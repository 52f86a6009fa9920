"""Where the inputs of steps lie on the device, and the page-locked memory that they get there from."""

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jetway.runtime.executor.trt_tensors import INPUTS, Tensor, on_host

from .device import Device, Stream

if TYPE_CHECKING:
    import torch

ALIGNMENT = 256  # bytes, of every tensor


class _Room(NamedTuple):
    """Memory for the inputs of one step."""

    staged: "torch.Tensor"  # page-locked
    sent: "torch.Tensor"  # on the device


class InputBuffers:
    """Room for the inputs of as many steps as may be on the device at once; each step's are sent in one copy.

    They go on a stream of their own, beside the step that runs. A step's room is free again once it was waited for.
    """

    def __init__(self, device: Device, dims: Mapping[str, int], num_steps: int) -> None:
        """`dims`: the most that each named dimension of an input can be."""
        num_bytes = sum(_aligned(_most_bytes(name, dims)) for name in INPUTS if not on_host(name))
        rooms = [_Room(device.pinned_zeros(num_bytes), device.zeros(num_bytes)) for _ in range(num_steps)]
        self._rooms = cycle(rooms)
        self._sending = device.stream()

    def send(self, tensors: Mapping[str, Tensor], compute: Stream) -> "dict[str, torch.Tensor]":
        """The tensors on the device, for what `compute` is asked from here on."""
        import torch

        room = next(self._rooms)
        staged, places, end = room.staged.numpy(), dict[str, slice](), 0
        for name, tensor in tensors.items():
            places[name] = slice(end, end + tensor.nbytes)
            staged[places[name]] = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
            end += _aligned(tensor.nbytes)
        self._sending.copy(room.sent[:end], room.staged[:end])
        compute.wait(self._sending.record())
        return {name: room.sent[place].view(torch.int32).view(tensors[name].shape) for name, place in places.items()}


def _most_bytes(name: str, dims: Mapping[str, int]) -> int:
    spec = INPUTS[name]
    sizes = [dims[dim] if isinstance(dim, str) else dim for dim in spec.dims]
    return int(np.prod(sizes)) * np.dtype(spec.dtype).itemsize


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
