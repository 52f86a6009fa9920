"""The two pools of a TensorRT engine, and the copies between them, on a stream of their own."""

from collections import deque
from dataclasses import dataclass
from typing import Self

import numpy as np

from jetway.runtime.executor.base import Int32Array, Int64Array, StepBatch
from jetway.runtime.executor.trt_kv import KvLayout

from .device import Device, Event, Stream


@dataclass(frozen=True, slots=True)
class StepBlocks:
    """The device blocks that a step needs; some stand there more than once."""

    used: Int32Array  # of all of its rows
    written: Int32Array  # [T] where each token's KV goes

    @classmethod
    def of(cls, batch: StepBatch, tokens_per_block: int) -> Self:
        num_tokens = np.diff(batch.subsequence_begins)
        first_blocks = np.repeat(batch.block_indices_begins[:-1], num_tokens)
        return cls(batch.block_indices, batch.block_indices[first_blocks + batch.position_ids // tokens_per_block])


class SlabPools:
    """Blocks on the device and in page-locked main memory, each one slab, all zero at first.

    Copies and steps take effect as if each were done when it is asked for. In fact copies go on beside the steps, those
    already asked for and those to come, whose blocks they leave alone; events put the others in order.
    """

    def __init__(
        self, device: Device, layout: KvLayout, num_device_blocks: int, num_host_blocks: int, num_steps: int
    ) -> None:
        """`num_steps` may be on the device at once. Raises ConfigError where there is no such memory."""
        size = layout.block_bytes
        self._device = device.zeros(num_device_blocks * size).view(num_device_blocks, size)
        self._host = device.pinned_zeros(num_host_blocks * size).view(num_host_blocks, size)
        self._copies = device.stream()
        # By device block: whether a copy that no step has waited for reads it, or writes it.
        self._leaving = np.zeros(num_device_blocks, np.bool_)
        self._arriving = np.zeros(num_device_blocks, np.bool_)
        # By device block: the number of the last step that used it, or wrote it; steps count from 1.
        self._used_by = np.zeros(num_device_blocks, np.int64)
        self._written_by = np.zeros(num_device_blocks, np.int64)
        self._num_steps = 0
        self._ends = deque[Event](maxlen=num_steps)  # of the last steps; all before them are done

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
        self._wait_for(self._written_by[device_blocks])
        for device_block, host_block in zip(device_blocks.tolist(), host_blocks.tolist(), strict=True):
            self._copies.copy(self._host[host_block], self._device[device_block])
        self._leaving[device_blocks] = True

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        """Copy host block i to device block i."""
        self._wait_for(self._used_by[device_blocks])
        for host_block, device_block in zip(host_blocks.tolist(), device_blocks.tolist(), strict=True):
            self._copies.copy(self._device[device_block], self._host[host_block])
        self._arriving[device_blocks] = True

    def before(self, step: StepBlocks, compute: Stream) -> None:
        """Make `compute` wait for the copies that the step depends on.

        It reads all of its rows' blocks, so what arrives in one must be there; and it writes those of its new tokens, so
        what leaves one must be gone. Reading what leaves is free: a full block that is written through stays in use.
        """
        if self._arriving[step.used].any() or self._leaving[step.written].any():
            compute.wait(self._copies.record())
            self._leaving[:] = self._arriving[:] = False

    def after(self, step: StepBlocks, compute: Stream) -> None:
        """`compute` has been asked for the step: copies of its blocks that are asked for from here on wait for it."""
        self._num_steps += 1
        self._used_by[step.used] = self._written_by[step.written] = self._num_steps
        self._ends.append(compute.record())

    def _wait_for(self, steps: Int64Array) -> None:
        """Make copies wait for the last of these steps, and so for all."""
        num_later = self._num_steps - int(steps.max())
        if num_later < len(self._ends):
            self._copies.wait(self._ends[-1 - num_later])
