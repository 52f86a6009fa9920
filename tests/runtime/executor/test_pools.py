"""Copies between the tiers move whole blocks of every tensor and nothing else."""

import numpy as np
import pytest

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.pools import BlockPools

BLOCKS = np.arange


def make_pools() -> BlockPools:
    """Two tensors of different shape; device block i is filled with i + 1."""
    pools = BlockPools([(2, 3), (4,)], np.float32, 5, 3)
    for tensor in pools.device:
        tensor += np.arange(1, 6).reshape(-1, *[1] * (tensor.ndim - 1))
    return pools


def contents(tensors: list[np.ndarray]) -> list[list[float]]:
    """For each tensor, the one value that each of its blocks is full of."""
    for tensor in tensors:
        assert (tensor == tensor.reshape(len(tensor), -1)[:, 0].reshape(-1, *[1] * (tensor.ndim - 1))).all()
    return [tensor.reshape(len(tensor), -1)[:, 0].tolist() for tensor in tensors]


def test_copy_out_and_in_move_whole_blocks_in_every_tensor() -> None:
    pools = make_pools()
    pools.copy_out(np.array([4, 0], np.int32), np.array([0, 2], np.int32))
    assert contents(pools.host) == [[5.0, 0.0, 1.0]] * 2
    pools.copy_in(np.array([0, 1], np.int32), np.array([2, 3], np.int32))
    assert contents(pools.device) == [[1.0, 2.0, 5.0, 0.0, 5.0]] * 2


@pytest.mark.parametrize("num_device_blocks", [1 << 50, 1 << 62])  # numpy refuses them in two ways
def test_more_than_there_is_memory_for_is_refused(num_device_blocks: int) -> None:
    with pytest.raises(ConfigError, match=f"{num_device_blocks} device and 3 host blocks of 40 bytes do not fit"):
        BlockPools([(2, 3), (4,)], np.float32, num_device_blocks, 3)


def test_sizes() -> None:
    pools = make_pools()
    assert (pools.num_device_blocks, pools.num_host_blocks, pools.block_bytes) == (5, 3, (6 + 4) * 4)
    assert [tensor.shape for tensor in [*pools.device, *pools.host]] == [(5, 2, 3), (5, 4), (3, 2, 3), (3, 4)]
