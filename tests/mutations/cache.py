"""Sections 3.2 and 3.3: how the table names blocks, and how the pool lies in memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from tests.support.trt_interpreter import Sizes
from tests.support.trt_llama import SMALL_MODEL
from tests.support.trt_mutation import Mutation, Mutations, Tensors, changed

LIST = Mutations()
NUM_LAYERS = SMALL_MODEL["num_hidden_layers"]


@LIST.tensors("3.2 offset")
def layers_not_counted(step: Tensors) -> None:
    keys = step.table[:, 0] // 2
    step.table = np.stack((keys, np.where(step.used, keys + 1, 0)), axis=1)


@LIST.tensors("3.2 offset")
def keys_and_values_not_counted(step: Tensors) -> None:
    step.table = np.stack((step.table[:, 0] // 2, np.where(step.used, step.table[:, 0] // 2 + 1, 0)), axis=1)


@LIST.tensors("3.2 offset")
def values_where_keys_are(step: Tensors) -> None:
    step.table = np.repeat(step.table[:, :1], 2, axis=1)


@LIST.tensors("3.2 offset")
def values_before_keys(step: Tensors) -> None:
    step.table = step.table[:, ::-1]


@LIST.tensors("3.2 offset")
def keys_and_values_in_turn(step: Tensors) -> None:
    step.table = step.table.swapaxes(1, 2).reshape(step.table.shape)


@LIST.tensors("3.2 offset")
def bytes_for_offsets(step: Tensors) -> None:
    step.table = step.table * 4


@LIST.tensors("3.2 unused entries")
def minus_one_for_no_block(step: Tensors) -> None:
    step.table = np.where(step.used[:, None], step.table, -1)


@LIST.tensors("3.2 unused entries")
def values_of_no_block(step: Tensors) -> None:
    step.table = np.stack((step.table[:, 0], np.where(step.used, step.table[:, 1], 1)), axis=1)


@LIST.tensors("3.2 host bit")
def blocks_in_the_hosts_pool(step: Tensors) -> None:
    step.table = np.where(step.used[:, None], step.table | np.int32(-(2**31)), step.table)


@LIST.tensors("3.2 block ids")
def block_before_the_right_one(step: Tensors) -> None:
    stride = 2 * NUM_LAYERS
    step.table = np.where(step.used[:, None], np.maximum(step.table - stride, step.table % stride), 0)


def _strides(stride: int) -> Callable[[Tensors], None]:
    """Offsets that count `stride` a block."""

    def change(step: Tensors) -> None:
        blocks, values = np.divmod(step.table, 2 * NUM_LAYERS)
        step.table = np.where(step.used[:, None], blocks * stride + values, 0)

    return change


for _name, _stride in (
    ("tokens_a_block", Sizes().tokens_per_block),
    ("two_a_key_head", 2 * SMALL_MODEL["num_key_value_heads"]),
    ("layers_squared", NUM_LAYERS**2),
    ("layers", NUM_LAYERS),
):
    LIST[f"offsets_of_{_name}"] = Mutation(rule="3.2 offset", bound=partial(changed, change=_strides(_stride)))


@LIST.tensors("3.2 block ids")
def blocks_in_reverse(step: Tensors) -> None:
    for row, used in zip(step.table, step.used, strict=True):
        row[:, used] = row[:, used][:, ::-1]
    step.table = step.table  # the host's becomes the same


LIST["slab_of_half_its_bytes"] = Mutation(
    rule="3.3 a block is one slab over all layers", layout=lambda layout: replace(layout, item_bytes=2)
)
LIST["slab_of_one_head"] = Mutation(rule="3.3 pool layout", layout=lambda layout: replace(layout, num_kv_heads=1))
LIST["slab_of_all_query_heads"] = Mutation(
    rule="3.3 pool layout",
    layout=lambda layout: replace(layout, num_kv_heads=SMALL_MODEL["num_attention_heads"]),
)
LIST["slab_of_half_a_head"] = Mutation(
    rule="3.3 pool layout", layout=lambda layout: replace(layout, head_size=layout.head_size // 2)
)
LIST["slab_of_half_its_tokens"] = Mutation(
    rule="3.3 pool layout",
    slab_bytes=lambda layout: replace(layout, tokens_per_block=layout.tokens_per_block // 2).block_bytes,
)
LIST["slab_of_kv_heads_for_layers"] = Mutation(
    rule="3.3 pool layout", slab_bytes=lambda layout: replace(layout, num_layers=layout.num_kv_heads).block_bytes
)
LIST["slab_of_tokens_for_layers"] = Mutation(
    rule="3.3 pool layout", slab_bytes=lambda layout: replace(layout, num_layers=layout.tokens_per_block).block_bytes
)
LIST["slab_of_one_layer"] = Mutation(
    rule="3.3 a block is one slab over all layers", slab_bytes=lambda layout: replace(layout, num_layers=1).block_bytes
)
LIST["copied_out_of_each_others_blocks"] = Mutation(
    rule="3.3 block ids after a swap", copied_out=lambda blocks: np.roll(blocks, 1)
)
LIST["copied_into_each_others_blocks"] = Mutation(
    rule="3.3 block ids after a swap", copied_in=lambda blocks: np.roll(blocks, 1)
)
LIST["pool_not_zeroed"] = Mutation(rule="3.3 the pool is zeroed", pool_fill=float("nan"))
