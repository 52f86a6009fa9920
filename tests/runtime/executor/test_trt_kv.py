"""The pool's layout, in numbers of contracts/tensorrt-llm.md sections 3.2 and 3.3."""

from dataclasses import replace

import numpy as np

from jetway.runtime.executor.trt_kv import KvLayout

LAYOUT = KvLayout(num_layers=32, num_kv_heads=8, tokens_per_block=32, head_size=128, item_bytes=2, max_seq_len=100)


def test_a_block_is_a_slab_over_all_layers() -> None:
    """Llama 3 8B in fp16: 4 MiB for 32 tokens; half of it in FP8."""
    assert LAYOUT.block_bytes == 32 * 2 * (32 * 8 * 128 * 2) == 4 * 2**20
    assert replace(LAYOUT, item_bytes=1).block_bytes == 2 * 2**20
    pool = np.zeros(LAYOUT.pool_shape(3), np.float16)
    assert pool.strides[0] == LAYOUT.block_bytes
    assert pool.shape == (3, 32, 2, 8, 32, 128)


def test_offsets_count_layers_keys_and_values() -> None:
    """Blocks 5 and 0 of one row, and 7 of another, which comes first."""
    table = LAYOUT.offsets(np.array([5, 0, 7], np.int32), np.array([2, 1], np.int32), np.array([1, 0]))
    assert table.tolist() == [[[[448, 0, 0, 0], [449, 0, 0, 0]], [[320, 0, 0, 0], [321, 1, 0, 0]]]]
    assert table.dtype == np.int32


def test_the_table_is_as_wide_as_the_longest_sequence() -> None:
    assert [replace(LAYOUT, max_seq_len=n).max_blocks_per_seq for n in (1, 32, 33, 64)] == [1, 1, 2, 2]


def test_offsets_of_all_blocks_leave_the_top_bit_alone() -> None:
    assert LAYOUT.max_num_blocks == 2**31 // 64
    last = np.array([LAYOUT.max_num_blocks - 1], np.int32)
    table = LAYOUT.offsets(last, np.array([1], np.int32), np.array([0]))
    assert table[0, 0, :, 0].tolist() == [2**31 - 64, 2**31 - 63]
