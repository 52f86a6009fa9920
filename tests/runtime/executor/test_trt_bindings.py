"""One mixed step in numbers, worked out by hand from contracts/tensorrt-llm.md section 3, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.base import SamplingState, StepBatch
from jetway.runtime.executor.trt_bindings import AllReduceWorkspace, BoundStep, DeviceMemory, StepBinder
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_rank import RankPart
from jetway.runtime.executor.trt_tensors import EnginePort
from tests.runtime.executor.driving import GREEDY

LAYOUT = KvLayout(num_layers=3, num_kv_heads=1, tokens_per_block=4, head_size=8, item_bytes=2, max_seq_len=16)
ALONE = RankPart(rank=0, tp_size=1, num_stages=1, num_layers=3)
POOL_ADDRESS = 0x7F00_0000_0000
LOGITS = EnginePort(name="logits", dtype="float32", shape=(-1, 320), is_input=False)


def port(name: str, *shape: int, dtype: str = "int32") -> EnginePort:
    return EnginePort(name=name, dtype=dtype, shape=shape, is_input=True)


PORTS = [
    port("input_ids", -1),
    port("position_ids", -1),
    port("last_token_ids", -1),
    port("kv_cache_block_offsets", 1, -1, 2, -1),
    port("host_kv_cache_block_offsets", 1, -1, 2, -1),
    port("host_kv_cache_pool_pointers", 1, 2, dtype="int64"),
    port("host_kv_cache_pool_mapping", 3, 2),
    port("sequence_length", -1),
    port("host_request_types", -1),
    port("host_past_key_value_lengths", -1),
    port("context_lengths", -1),
    port("host_context_lengths", -1),
    port("host_runtime_perf_knobs", 16, dtype="int64"),
    port("host_context_progress", 1, dtype="int64"),
    port("host_max_attention_window_sizes", 3),
    port("host_sink_token_length", 1),
    port("cache_indirection", -1, 1, -1),
    LOGITS,
]


def make_state() -> SamplingState:
    return SamplingState(0, 0, GREEDY, frozenset(), [0], 1)


def mixed_batch() -> StepBatch:
    """In the plan's order: a decode, the first chunk of nine tokens, a decode of a token that only the device has, and
    the last token of a sequence that comes back from the host."""
    return StepBatch(
        input_ids=np.array([77, 10, 11, 12, 13, 0, 50]),
        position_ids=np.array([6, 0, 1, 2, 3, 9, 5]),
        past_lens=np.array([6, 0, 9, 5], np.int32),
        subsequence_begins=np.array([0, 1, 5, 6, 7], np.int32),
        block_indices=np.array([4, 2, 1, 3, 6, 7, 5, 8], np.int32),
        block_indices_begins=np.array([0, 2, 3, 6, 8], np.int32),
        max_context_len=10,
        sample_tokens=np.array([0, 5, 6]),
        sample_states=[make_state(), make_state(), make_state()],
        row_slots=np.array([3, 0, 5, 1]),
        start_lens=np.array([5, 9, 8, 6], np.int32),
        pending_rows=np.array([2]),
    )


def without(name: str) -> list[EnginePort]:
    return [each for each in PORTS if each.name != name]


def bind(batch: StepBatch, ports: list[EnginePort] = PORTS, part: RankPart = ALONE) -> BoundStep:
    return StepBinder(ports, part, LAYOUT, DeviceMemory(kv_pool=POOL_ADDRESS)).bind(batch)


def test_a_mixed_step_becomes_these_tensors() -> None:
    """Context rows come first: the chunk and the resumed token; then the decodes."""
    step = bind(mixed_batch())
    table = [[[6, 0, 0, 0], [7, 0, 0, 0]], [[30, 48, 0, 0], [31, 49, 0, 0]]]  # block * 3 layers * 2, + 1 for values
    table += [[[24, 12, 0, 0], [25, 13, 0, 0]], [[18, 36, 42, 0], [19, 37, 43, 0]]]
    assert {name: (tensor.dtype.name, tensor.tolist()) for name, tensor in step.device.items()} == {
        "input_ids": ("int32", [10, 11, 12, 13, 50, 77, 0]),
        "position_ids": ("int32", [0, 1, 2, 3, 5, 6, 9]),
        "last_token_ids": ("int32", [4, 5, 6, 7]),
        "kv_cache_block_offsets": ("int32", [table]),
        "sequence_length": ("int32", [4, 6, 7, 10]),
        "context_lengths": ("int32", [4, 1, 5, 8]),
        "cache_indirection": ("int32", [[[0] * 16]]),
    }
    assert {name: (tensor.dtype.name, tensor.tolist()) for name, tensor in step.host.items()} == {
        "host_kv_cache_block_offsets": ("int32", [table]),
        "host_kv_cache_pool_pointers": ("int64", [[POOL_ADDRESS, 0]]),
        "host_kv_cache_pool_mapping": ("int32", [[0, 0], [0, 1], [0, 2]]),
        "host_request_types": ("int32", [0, 0, 1, 1]),
        "host_past_key_value_lengths": ("int32", [4, 6, 6, 9]),
        "host_context_lengths": ("int32", [4, 1, 5, 8]),
        "host_runtime_perf_knobs": ("int64", [1] + [-1] * 15),
        "host_context_progress": ("int64", [0]),
        "host_max_attention_window_sizes": ("int32", [16, 16, 16]),
        "host_sink_token_length": ("int32", [0]),
    }


def test_indices_follow_the_rows_into_their_new_order() -> None:
    step = bind(mixed_batch())
    assert (step.holes.tolist(), step.hole_slots.tolist()) == ([6], [5])
    assert (step.logits_rows.tolist(), step.sample_slots.tolist()) == ([2, 3, 1], [3, 5, 1])
    assert step.num_rows == 4


def test_only_what_the_engine_asks_for_is_bound() -> None:
    """Engines of other versions have no host_context_progress."""
    step = bind(mixed_batch(), without("host_context_progress"))
    assert "host_context_progress" not in step.host and len(step.device) == 7 and len(step.host) == 9


def test_tensor_parallel_ranks_bind_their_workspace_on_the_host() -> None:
    workspace = np.arange(7 * 2 + 3, dtype=np.int64)
    memory = DeviceMemory(kv_pool=POOL_ADDRESS, all_reduce_workspace=AllReduceWorkspace(workspace))
    ports = [*PORTS, port("all_reduce_workspace", 17, dtype="int64")]
    step = StepBinder(ports, replace(ALONE, tp_size=2), LAYOUT, memory).bind(mixed_batch())
    assert step.host["all_reduce_workspace"] is workspace


def test_a_later_stage_has_hidden_states_for_tokens_and_an_earlier_one_for_logits() -> None:
    """Memory on the device that no step fills; of the row ends only the last stage has need."""
    hidden = port("hidden_states_input", -1, 80, dtype="bfloat16")
    first, middle, last = (replace(ALONE, rank=rank, num_stages=3) for rank in range(3))
    given = {"position_ids", "kv_cache_block_offsets", "sequence_length", "context_lengths", "cache_indirection"}
    output = replace(hidden, name="hidden_states_output", is_input=False)
    inner = [each for each in PORTS if each.name not in ("input_ids", "last_token_ids", "logits")]
    batch = replace(mixed_batch(), pending_rows=np.empty(0, np.int64))
    for part, ports, more in (
        (first, [*inner, port("input_ids", -1), output], {"input_ids"}),
        (middle, [*inner, hidden, output], set()),
        (last, [*inner, hidden, port("last_token_ids", -1), LOGITS], {"last_token_ids"}),
    ):
        step = bind(batch, ports, part)
        assert step.device.keys() == given | more and (step.num_tokens, step.num_rows) == (7, 4)


@pytest.mark.parametrize(
    ("rank", "ports", "message"),
    [
        (0, PORTS, "must put out hidden_states_output in float32 or float16 or bfloat16; it puts out logits float32"),
        (1, PORTS, "does not ask for hidden_states_input, as one of a later stage does"),
        (
            1,
            [port("hidden_states_input", -1, dtype="float16"), LOGITS],
            "binds two dimensions of float32 or float16 or",
        ),
        (
            0,
            [port("all_reduce_workspace", 24, dtype="int64")],
            r"asks for all_reduce_workspace, int64\[24\]; .* \[10\]",
        ),
    ],
)
def test_parts_that_are_others_are_refused(rank: int, ports: list[EnginePort], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind(mixed_batch(), ports, replace(ALONE, rank=rank, num_stages=2))


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        (
            [*PORTS, port("q_lora_ranks_0", -1)],
            r"asks for q_lora_ranks_0, int32\[-1\], which Jetway does not know; build it with build-engine",
        ),
        ([port("input_ids", -1, dtype="int64"), LOGITS], r"asks for input_ids, int64\[-1\]; Jetway binds it as int32"),
        (
            [port("host_kv_cache_pool_pointers", 2, 2, dtype="int64"), LOGITS],
            r"asks for host_kv_cache_pool_pointers, int64\[2, 2\]; Jetway binds it as \[1, 2\]",
        ),
        (
            [port("host_max_attention_window_sizes", 4), LOGITS],
            r"asks for host_max_attention_window_sizes, int32\[4\]; Jetway binds it as \[3\]",
        ),
        ([port("input_ids", -1, -1), LOGITS], r"asks for input_ids, int32\[-1, -1\]; Jetway binds it as \['tokens'\]"),
        (
            [replace(LOGITS, name="hidden_states_output")],
            "must put out logits in float32 or float16; it puts out hidden",
        ),
        ([replace(LOGITS, dtype="bfloat16")], "it puts out logits bfloat16"),
        (without("last_token_ids"), "does not ask for last_token_ids; its logits are of all tokens"),
        (without("host_sink_token_length"), "does not ask for host_sink_token_length, as one with a paged cache"),
        (
            [*without("cache_indirection"), port("cache_indirection", -1, 1, 1024)],
            r"asks for cache_indirection, int32\[-1, 1, 1024\]; Jetway binds it as \['cache_rows', 1, 16\]",
        ),
        (
            [*without("kv_cache_block_offsets"), port("kv_cache_block_offsets", 1, -1, 2, 5)],
            r"asks for kv_cache_block_offsets, int32\[1, -1, 2, 5\]; Jetway binds it as \[1, 'rows', 2, 4\]",
        ),
        ([*PORTS, replace(LOGITS, name="debug")], "it puts out logits float32, debug float32"),
    ],
    ids=[
        *("lora", "type", "two-pools", "other-layers", "padded", "pipeline", "logits-type", "logits-of-all-tokens"),
        *("no-sink", "other-window", "other-table", "debug"),
    ],
)
def test_engines_that_ask_for_something_else_are_refused(ports: list[EnginePort], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind(mixed_batch(), ports)


def test_what_no_engine_checks_is_asserted() -> None:
    batch = mixed_batch()
    with pytest.raises(AssertionError, match="a chunk before the last is not whole blocks"):
        bind(replace(batch, start_lens=batch.start_lens + np.array([0, 0, 0, 1], np.int32)))
    with pytest.raises(AssertionError, match="a sampled token is not fed alone"):
        bind(replace(batch, start_lens=np.zeros(4, np.int32)))
