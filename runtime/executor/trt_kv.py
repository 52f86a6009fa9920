"""The KV pool of a TensorRT-LLM engine: its layout, and how a step names places in it.

contracts/tensorrt-llm.md sections 3.2 and 3.3. Nothing of it has run on a GPU.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from jetway.builder.manifest import KV_BYTES, Manifest

from .base import Int32Array, Int64Array
from .counts import blocks_of
from .trt_rank import RankPart

# The top bit of an offset says "in the host's pool", where the attention kernels cannot compute.
MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """One rank's pool: [num_blocks, num_layers, 2, num_kv_heads, tokens_per_block, head_size], contiguous.

    So a block is one slab over all layers, and a swap is one copy a block. The pool must be zeroed when it is allocated:
    context attention multiplies the unused rows of V by zero, and 0 * NaN is NaN.
    """

    num_layers: int  # of this rank
    num_kv_heads: int  # of this rank
    tokens_per_block: int  # a power of two
    head_size: int
    item_bytes: int  # of one number: 1 for an FP8 or INT8 cache
    max_seq_len: int

    @classmethod
    def of(cls, manifest: Manifest, part: RankPart) -> Self:
        """KV heads are split over the ranks of a stage, and doubled where there are fewer than ranks."""
        return cls(
            num_layers=part.num_layers,
            num_kv_heads=-(-manifest.num_key_value_heads // part.tp_size),
            tokens_per_block=manifest.tokens_per_block,
            head_size=manifest.head_size,
            item_bytes=KV_BYTES[manifest.kv_cache_dtype],
            max_seq_len=manifest.max_seq_len,
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of one block's slab."""
        return self.num_layers * 2 * self.num_kv_heads * self.tokens_per_block * self.head_size * self.item_bytes

    @property
    def max_blocks_per_seq(self) -> int:
        """The width of a step's block tables, whatever its rows need."""
        return blocks_of(self.max_seq_len, self.tokens_per_block)

    @property
    def max_num_blocks(self) -> int:
        """Blocks whose offsets an int32 holds beside its top bit."""
        return (MAX_OFFSET + 1) // (self.num_layers * 2)

    @property
    def dims(self) -> dict[str, int]:
        """The dimensions of a step's inputs that no step decides, by their names in `trt_tensors`."""
        return {"layers": self.num_layers, "blocks": self.max_blocks_per_seq, "window": self.max_seq_len}

    def pool_shape(self, num_blocks: int) -> tuple[int, ...]:
        return (num_blocks, self.num_layers, 2, self.num_kv_heads, self.tokens_per_block, self.head_size)

    def offsets(self, blocks: Int32Array, num_blocks: Int32Array, order: Int64Array) -> Int32Array:
        """The offset table [1, rows, 2, max_blocks_per_seq] of concatenated block tables, `num_blocks` [rows] each.

        Row i is that of block table order[i]. The offset of K (0) or V (1) of a block is block * num_layers * 2 + that;
        entries that no token uses are 0.
        """
        width = int(num_blocks.max())  # the rest is never touched: tables for long sequences have megabytes
        used: NDArray[np.bool_] = np.arange(width) < num_blocks[:, None]
        keys, values = np.zeros((2, len(num_blocks), width), np.int32)
        keys[used] = blocks * np.int32(self.num_layers * 2)
        values[used] = keys[used] + np.int32(1)
        table = np.zeros((1, len(num_blocks), 2, self.max_blocks_per_seq), np.int32)
        table[0, :, 0, :width], table[0, :, 1, :width] = keys[order], values[order]
        return table
