"""The device and the host pool: memory of ours, so that moving a block is a plain copy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from jetway.runtime.errors import ConfigError

from .base import Int32Array

Tensor = NDArray[Any]


class BlockPools:
    """The same tensors in two tiers, each [num_blocks, *shape]: `device`, which an engine computes in, and `host`.

    Every page is touched, so memory that is not there is missed now and not in the middle of a step.
    Raises ConfigError when it is not there.
    """

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, num_device_blocks: int, num_host_blocks: int
    ) -> None:
        self.num_device_blocks, self.num_host_blocks = num_device_blocks, num_host_blocks
        try:
            self.device: list[Tensor] = [np.full((num_device_blocks, *shape), 0, dtype) for shape in shapes]
            self.host: list[Tensor] = [np.full((num_host_blocks, *shape), 0, dtype) for shape in shapes]
        except (MemoryError, ValueError) as error:  # numpy's ValueError: more than it can address
            block_bytes = np.dtype(dtype).itemsize * sum(math.prod(shape) for shape in shapes)
            blocks = f"{num_device_blocks} device and {num_host_blocks} host blocks of {block_bytes} bytes"
            remedy = "lower kv_cache_memory, num_device_blocks or host_cache_memory"
            raise ConfigError(f"{blocks} do not fit in memory; {remedy}") from error

    @property
    def block_bytes(self) -> int:
        return sum(tensor.strides[0] for tensor in self.device)

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        """Copy device block i to host block i in every tensor. Modifies the host pool."""
        for device, host in zip(self.device, self.host, strict=True):
            host[host_blocks] = device[device_blocks]

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        """Copy host block i to device block i in every tensor. Modifies the device pool."""
        for device, host in zip(self.device, self.host, strict=True):
            device[device_blocks] = host[host_blocks]
