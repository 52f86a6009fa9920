"""Small arrays to the device and back, in the order of the current stream; nobody waits for the device."""

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def to_device(array: NDArray[Any], device: "torch.device") -> "Tensor":
    """The array there, once the stream has come so far; it may change as soon as this returns."""
    import torch

    tensor = torch.from_numpy(array)
    # Page-locked memory of torch's own, which it keeps until the copy is done.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.clone()


def to_host(tensor: "Tensor") -> "Tensor":
    """The tensor in page-locked memory of torch's own; to be read once the stream has come so far."""
    return tensor.to("cpu", non_blocking=True)
