"""Section 3.1: tensors with an entry a token or a row."""

from dataclasses import replace

import numpy as np

from tests.support.trt_mutation import Mutation, Mutations, Tensors

LIST = Mutations()


@LIST.tensors("3.1 input_ids")
def tokens_one_place_on(step: Tensors) -> None:
    step["input_ids"] = np.roll(step["input_ids"], 1)


@LIST.tensors("3.1 dtype")
def wide_input_ids(step: Tensors) -> None:
    step["input_ids"] = step["input_ids"].astype(np.int64)


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


@LIST.tensors("3.1 dimensions of one name")
def one_length_too_few(step: Tensors) -> None:
    step["sequence_length"] = step["sequence_length"][:-1]


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
LIST["logits_of_another_row"] = Mutation(
    rule="3.1 logits", bound=lambda step: replace(step, logits_rows=np.roll(step.logits_rows, 1))
)
