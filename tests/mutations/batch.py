"""Section 3.4: what a batch may hold, and in which order."""

from dataclasses import replace

import numpy as np

from jetway.runtime.executor.trt_bindings import BoundStep
from tests.support.trt_interpreter import Sizes
from tests.support.trt_mutation import ROW_TENSORS, TABLES, Mutation, Mutations, Tensors, changed

LIST = Mutations()


@LIST.tensors("3.4 context rows first")
def generation_rows_first(step: Tensors) -> None:
    step.take_rows(np.argsort(step.context, kind="stable"))


@LIST.tensors("3.4 context rows first")
def phases_in_turn(step: Tensors) -> None:
    step.take_rows(np.roll(np.arange(len(step.context)), 1))


@LIST.tensors("3.4 the split of context tokens")
def split_one_token_late(step: Tensors) -> None:
    step["context_lengths"][:1] += 1
    step["host_context_lengths"][:1] += 1


@LIST.tensors("3.4 chunks are all computed")
def chunk_cut_short(step: Tensors) -> None:
    """The last context row loses its last token, as if the budget had ended there."""
    row = int(step.context.sum()) - 1
    if row >= 0 and step.num_tokens[row] > 1:
        cut_last_token(step, row)


def cut_last_token(step: Tensors, row: int) -> None:
    last = step["last_token_ids"][row] - 1
    for name in ("input_ids", "position_ids"):
        step[name] = np.delete(step[name], last)
    step["last_token_ids"][row:] -= 1
    for name in ("context_lengths", "host_context_lengths", "sequence_length", "host_past_key_value_lengths"):
        step[name][row] -= 1
    width = -(-step["sequence_length"] // Sizes().tokens_per_block)
    step.table = np.where(np.arange(step.table.shape[2]) < width[:, None, None], step.table, 0)


def _with_part_of_a_block(step: BoundStep) -> BoundStep:
    """A chunk before the last, whose logits nobody reads, ends one token early."""
    is_chunk = step.host["host_request_types"] == 0
    is_chunk[step.logits_rows] = False
    chunks = np.flatnonzero(is_chunk)
    if not len(chunks):
        return step
    cut = changed(step, lambda tensors: cut_last_token(tensors, int(chunks[0])))
    return replace(cut, holes=cut.holes - 1)  # all are in generation rows, which follow


LIST["chunk_of_part_of_a_block"] = Mutation(rule="3.4 chunks are whole blocks", bound=_with_part_of_a_block)


@LIST.tensors("3.4 one token a generation row")
def generation_row_of_two_tokens(step: Tensors) -> None:
    if step.context.all():
        return
    for name in ("input_ids", "position_ids"):
        step[name] = np.append(step[name], step[name][-1:])
    step["last_token_ids"][-1] += 1


@LIST.tensors("3.4 no empty step")
def no_tokens(step: Tensors) -> None:
    for name in ("input_ids", "position_ids", "last_token_ids", *ROW_TENSORS):
        step[name] = step[name][:0]
    step.table = step.table[:0]


@LIST.tensors("3.4 max_batch_size")
def more_rows_than_built_for(step: Tensors) -> None:
    if not step.context.any():
        step.take_rows(np.resize(np.arange(len(step.context)), Sizes().max_batch_size + 1))


@LIST.tensors("3.4 max_num_tokens")
def more_tokens_than_built_for(step: Tensors) -> None:
    """As a prompt in one piece would be."""
    for name in ("input_ids", "position_ids"):
        step[name] = np.resize(step[name], 1000)
    step["last_token_ids"][-1] = 1000


@LIST.tensors("3.4 the table's full width")
def table_as_wide_as_needed(step: Tensors) -> None:
    step.table = step.table[:, :, : step.used.sum(axis=1).max()]


@LIST.tensors("3.4 the table's full width")
def table_wider_than_built_for(step: Tensors) -> None:
    step.table = np.pad(step.table, ((0, 0), (0, 0), (0, 1)))


@LIST.tensors("3.4 the table's full width")
def table_without_a_part_of_a_block(step: Tensors) -> None:
    """As wide as the whole blocks of the longest sequence."""
    step.table = step.table[:, :, : Sizes().max_seq_len // Sizes().tokens_per_block]


@LIST.tensors("3.4 the two tables")
def tables_of_two_widths(step: Tensors) -> None:
    step[TABLES[1]] = step[TABLES[1]][..., :-1]


@LIST.tensors("3.4 valid entries for every token")
def newest_block_missing(step: Tensors) -> None:
    entries = step.used.sum(axis=1)
    step.table = np.where(np.arange(step.table.shape[2]) < entries[:, None, None] - 1, step.table, 0)
