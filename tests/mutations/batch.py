"""Section 3.4: what a batch may hold, and in which order."""

from dataclasses import replace

import numpy as np

from tests.support.trt_mutation import ROW_TENSORS, TABLES, Mutation, Mutations, Tensors

LIST = Mutations()

LIST["chunk_of_part_of_a_block"] = Mutation(
    rule="3.4 chunks are whole blocks", batch=lambda batch: replace(batch, start_lens=batch.start_lens + 1)
)


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
    if row < 0 or step.num_tokens[row] == 1:
        return
    last = step["last_token_ids"][row] - 1
    for name in ("input_ids", "position_ids"):
        step[name] = np.delete(step[name], last)
    step["last_token_ids"][row:] -= 1
    for name in ("context_lengths", "host_context_lengths", "sequence_length", "host_past_key_value_lengths"):
        step[name][row] -= 1
    width = -(-step["sequence_length"] // 4)
    step.table = np.where(np.arange(step.table.shape[2]) < width[:, None, None], step.table, 0)


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
        step.take_rows(np.resize(np.arange(len(step.context)), 9))


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


@LIST.tensors("3.4 the two tables")
def tables_of_two_widths(step: Tensors) -> None:
    step[TABLES[1]] = step[TABLES[1]][..., :-1]


@LIST.tensors("3.4 valid entries for every token")
def newest_block_missing(step: Tensors) -> None:
    entries = step.used.sum(axis=1)
    step.table = np.where(np.arange(step.table.shape[2]) < entries[:, None, None] - 1, step.table, 0)
