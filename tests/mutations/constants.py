"""Section 3.1: tables, where a tensor lies, and tensors that are alike in every step."""

import numpy as np

from tests.support.trt_interpreter import Sizes
from tests.support.trt_mutation import TABLES, Mutations, Tensors

LIST = Mutations()
SIZES = Sizes()
WHOLE_BLOCKS = -(-SIZES.max_seq_len // SIZES.tokens_per_block) * SIZES.tokens_per_block


@LIST.tensors("3.1 kv_cache_block_offsets")
def device_table_in_another_order(step: Tensors) -> None:
    step["kv_cache_block_offsets"] = np.roll(step["kv_cache_block_offsets"], 1, axis=1)


@LIST.tensors("3.1 host_kv_cache_block_offsets")
def host_table_left_empty(step: Tensors) -> None:
    step["host_kv_cache_block_offsets"][:] = 0


@LIST.tensors("3.1 host place")
def host_tensor_on_the_device(step: Tensors) -> None:
    step.device["host_request_types"] = step.host.pop("host_request_types")


@LIST.tensors("3.1 device place")
def device_tensor_on_the_host(step: Tensors) -> None:
    step.host["context_lengths"] = step.device.pop("context_lengths")


@LIST.tensors("3.1 host_kv_cache_pool_pointers")
def second_pool_on_the_host(step: Tensors) -> None:
    step["host_kv_cache_pool_pointers"][0, 1] = step["host_kv_cache_pool_pointers"][0, 0]


@LIST.tensors("3.1 cache_indirection")
def two_beams(step: Tensors) -> None:
    step["cache_indirection"] = np.repeat(step["cache_indirection"], 2, axis=1)


@LIST.tensors("3.1 cache_indirection")
def short_window(step: Tensors) -> None:
    step["cache_indirection"] = step["cache_indirection"][:, :, :-1]


@LIST.tensors("3.1 cache_indirection")
def no_cache_rows(step: Tensors) -> None:
    step["cache_indirection"] = step["cache_indirection"][:0]


@LIST.tensors("3.1 cache_indirection")
def more_cache_rows_than_sequences(step: Tensors) -> None:
    step["cache_indirection"] = np.repeat(step["cache_indirection"], SIZES.max_batch_size + 1, axis=0)


@LIST.tensors("3.1 cache_indirection")
def window_of_whole_blocks(step: Tensors) -> None:
    step["cache_indirection"] = np.zeros((1, 1, WHOLE_BLOCKS), np.int32)


@LIST.tensors("3.1 num_pools")
def two_pools(step: Tensors) -> None:
    for name in ("host_kv_cache_pool_pointers", *TABLES):
        step[name] = np.repeat(step[name], 2, axis=0)


@LIST.tensors("3.1 binding by name")
def tensor_left_out(step: Tensors) -> None:
    del step.host["host_context_progress"]


@LIST.tensors("3.1 binding by name")
def tensor_by_another_name(step: Tensors) -> None:
    step.host["host_past_kv_lengths"] = step.host.pop("host_past_key_value_lengths")


@LIST.tensors("3.1 binding by name")
def workspace_on_one_rank(step: Tensors) -> None:
    step.host["all_reduce_workspace"] = np.zeros(7 + 3, np.int64)


LIST.constant("host_kv_cache_pool_pointers", [[0, 0]])
LIST.constant("host_kv_cache_pool_mapping", [[0, 1], [0, 0], [0, 2]])
LIST.constant("host_kv_cache_pool_mapping", [[0, 0], [1, 0], [2, 0]])
for _window in (16, SIZES.num_blocks, SIZES.max_num_tokens, WHOLE_BLOCKS):
    LIST.constant("host_max_attention_window_sizes", [_window] * 3)
LIST.constant("host_sink_token_length", [4])
LIST.constant("host_runtime_perf_knobs", [-1] * 16)
LIST.constant("host_runtime_perf_knobs", [1, 1] + [-1] * 14)
LIST.constant("host_context_progress", [1])
