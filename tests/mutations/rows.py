"""Section 3.1: tensors with an entry a token or a row."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jetway.runtime.executor.trt_bindings import BoundStep
from tests.support.trt_contract import DEVICE_INPUTS, HOST_INPUTS
from tests.support.trt_llama import NUM_PADDED
from tests.support.trt_mutation import ROW_TENSORS, TOKEN_TENSORS, Mutation, Mutations, Tensors, changed

LIST = Mutations()


@LIST.tensors("3.1 input_ids")
def tokens_one_place_on(step: Tensors) -> None:
    step["input_ids"] = np.roll(step["input_ids"], 1)


def _with_dtype(name: str, dtype: str) -> Callable[[Tensors], None]:
    def change(step: Tensors) -> None:
        step[name] = step[name].astype(dtype)

    return change


def _with_one_row_less(name: str) -> Callable[[Tensors], None]:
    def change(step: Tensors) -> None:
        step[name] = step[name][:-1]

    return change


for _name, (_dtype, _) in (DEVICE_INPUTS | HOST_INPUTS).items():
    _other = "int64" if _dtype == "int32" else "int32"
    LIST[f"{_other}_{_name}"] = Mutation(rule="3.1 dtype", bound=partial(changed, change=_with_dtype(_name, _other)))
for _name in (*TOKEN_TENSORS, "last_token_ids", *ROW_TENSORS):
    LIST[f"one_less_{_name}"] = Mutation(
        rule="3.1 dimensions of one name", bound=partial(changed, change=_with_one_row_less(_name))
    )


@LIST.tensors("3.1 position_ids")
def positions_within_the_chunk(step: Tensors) -> None:
    step["position_ids"] -= np.repeat(np.where(step.context, step.begins, 0), step.num_tokens)


@LIST.tensors("3.1 position_ids")
def generation_position_is_the_length(step: Tensors) -> None:
    step["position_ids"] += np.repeat(~step.context, step.num_tokens)


@LIST.tensors("3.1 last_token_ids")
def last_tokens_from_zero(step: Tensors) -> None:
    step["last_token_ids"] -= 1


@LIST.tensors("3.1 last_token_ids")
def last_tokens_summed_by_phase(step: Tensors) -> None:
    step["last_token_ids"] -= np.where(step.context, 0, step.num_tokens[step.context].sum()).astype(np.int32)


@LIST.tensors("3.1 last_token_ids")
def last_tokens_are_counts(step: Tensors) -> None:
    step["last_token_ids"] = step.num_tokens


@LIST.tensors("3.1 host_request_types")
def resumed_token_as_generation(step: Tensors) -> None:
    last = int(step.context.sum()) - 1
    if last >= 0 and step.num_tokens[last] == 1:
        step["host_request_types"][last] = 1
        step["host_past_key_value_lengths"][last] -= 1


@LIST.tensors("3.1 host_request_types")
def a_third_phase(step: Tensors) -> None:
    step["host_request_types"][~step.context] = 2


@LIST.tensors("3.1 host_request_types")
def decode_as_context(step: Tensors) -> None:
    first = int(step.context.sum())
    step["host_request_types"][first : first + 1] = 0


@LIST.tensors("3.1 context_lengths")
def context_length_is_all_so_far(step: Tensors) -> None:
    step["context_lengths"] = np.where(step.context, step["sequence_length"], step["context_lengths"])
    step["host_context_lengths"] = step["context_lengths"].copy()


@LIST.tensors("3.1 context_lengths")
def generation_context_is_one(step: Tensors) -> None:
    step["context_lengths"] = np.where(step.context, step["context_lengths"], np.int32(1))
    step["host_context_lengths"] = step["context_lengths"].copy()


@LIST.tensors("3.1 context_lengths")
def generation_context_ends_earlier(step: Tensors) -> None:
    """As after a recompute that the lengths do not follow."""
    step["context_lengths"] -= (~step.context & (step["context_lengths"] > 1)).astype(np.int32)
    step["host_context_lengths"] = step["context_lengths"].copy()


@LIST.tensors("3.1 context_lengths")
def generation_context_is_the_past(step: Tensors) -> None:
    step["context_lengths"] = np.where(step.context, step["context_lengths"], step["sequence_length"] - 1)
    step["host_context_lengths"] = step["context_lengths"].copy()


@LIST.tensors("3.1 host_context_lengths")
def host_context_lengths_are_zero(step: Tensors) -> None:
    step["host_context_lengths"][:] = 0


@LIST.tensors("3.1 sequence_length")
def sequence_length_without_the_new_tokens(step: Tensors) -> None:
    step["sequence_length"] = step.begins


@LIST.tensors("3.1 sequence_length")
def sequence_length_is_the_chunk(step: Tensors) -> None:
    step["sequence_length"] = np.where(step.context, step.num_tokens, step["sequence_length"])


@LIST.tensors("3.1 host_past_key_value_lengths")
def past_as_the_name_says(step: Tensors) -> None:
    step["host_past_key_value_lengths"] = step.begins


@LIST.tensors("3.1 host_past_key_value_lengths")
def past_as_in_the_unit_test(step: Tensors) -> None:
    step["host_past_key_value_lengths"][step.context] = 0


@LIST.tensors("3.1 host_past_key_value_lengths")
def generation_past_with_the_new_token(step: Tensors) -> None:
    step["host_past_key_value_lengths"] = step["sequence_length"].copy()


LIST["token_from_another_slot"] = Mutation(
    rule="3.1 input_ids, on the device", bound=lambda step: replace(step, hole_slots=np.roll(step.hole_slots, 1))
)
LIST["token_into_the_batchs_place"] = Mutation(
    rule="3.1 input_ids, on the device", bound=lambda step: replace(step, holes=np.arange(len(step.holes)))
)


def _in_the_same_memory() -> Callable[[BoundStep], BoundStep]:
    """Every step's host tensors lie where those of the step before lay."""
    memory: dict[tuple[str, tuple[int, ...]], NDArray[Any]] = {}

    def change(tensors: Tensors) -> None:
        for name, tensor in tensors.host.items():
            place = memory.setdefault((name, tensor.shape), tensor)
            place[...] = tensor
            tensors.host[name] = place

    return partial(changed, change=change)


LIST["host_memory_of_a_running_step"] = Mutation(rule="3.1 lifetime", bound=_in_the_same_memory())
LIST["padded_columns_are_tokens"] = Mutation(
    rule="3.1 logits", num_read_columns=lambda vocab_size: vocab_size + NUM_PADDED
)
LIST["logits_of_another_row"] = Mutation(
    rule="3.1 logits", bound=lambda step: replace(step, logits_rows=np.roll(step.logits_rows, 1))
)
