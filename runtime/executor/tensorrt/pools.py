"""The two pools of a TensorRT engine, and the copies between them, on a stream of their own."""

import numpy as np

from jetway.runtime.executor.base import Int32Array, StepBatch
from jetway.runtime.executor.trt_kv import KvLayout

from .device import Device, Stream


class SlabPools:
    """Blocks on the device and in page-locked main memory, each one slab, all zero at first.

    Copies take effect as if each were done when it is asked for, after all steps that have returned. In fact they go on
    beside a step that touches none of their blocks; `before` makes a step wait for the others.
    """

    def __init__(self, device: Device, layout: KvLayout, num_device_blocks: int, num_host_blocks: int) -> None:
        """Raises ConfigError where there is no such memory."""
        size = layout.block_bytes
        self._device = device.zeros(num_device_blocks * size).view(num_device_blocks, size)
        self._host = device.pinned_zeros(num_host_blocks * size).view(num_host_blocks, size)
        self._tokens_per_block = layout.tokens_per_block
        self._copies = device.stream()
        # By device block: whether a copy that no step has waited for reads it, or writes it.
        self._leaving = np.zeros(num_device_blocks, np.bool_)
        self._arriving = np.zeros(num_device_blocks, np.bool_)

    @property
    def num_device_blocks(self) -> int:
        return len(self._device)

    @property
    def num_host_blocks(self) -> int:
        return len(self._host)

    @property
    def address(self) -> int:
        """Of the device pool."""
        return self._device.data_ptr()

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        """Copy device block i to host block i."""
        for device_block, host_block in zip(device_blocks.tolist(), host_blocks.tolist(), strict=True):
            self._copies.copy(self._host[host_block], self._device[device_block])
        self._leaving[device_blocks] = True

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        """Copy host block i to device block i."""
        for host_block, device_block in zip(host_blocks.tolist(), device_blocks.tolist(), strict=True):
            self._copies.copy(self._device[device_block], self._host[host_block])
        self._arriving[device_blocks] = True

    def before(self, batch: StepBatch, compute: Stream) -> None:
        """Make `compute` wait for the copies that the batch depends on.

        It reads all of its rows' blocks, so what arrives in one must be there; and it writes those of its new tokens, so
        what leaves one must be gone. Reading what leaves is free: a full block that is written through stays in use.
        """
        written = _written_blocks(batch, self._tokens_per_block)
        if self._arriving[batch.block_indices].any() or self._leaving[written].any():
            compute.wait(self._copies.record())
            self._leaving[:] = self._arriving[:] = False


def _written_blocks(batch: StepBatch, tokens_per_block: int) -> Int32Array:
    """[T] where each token's KV goes."""
    num_tokens = np.diff(batch.subsequence_begins)
    first_blocks = np.repeat(batch.block_indices_begins[:-1], num_tokens)
    written: Int32Array = batch.block_indices[first_blocks + batch.position_ids // tokens_per_block]
    return written
