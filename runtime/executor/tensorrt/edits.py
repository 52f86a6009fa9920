"""What changes single logits before anything is drawn: penalties, bias and the min_tokens mask, on the device."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jetway.runtime.executor.base import Int64Array, SamplingState

from .transfer import to_device

if TYPE_CHECKING:
    from torch import Tensor


class Edit(NamedTuple):
    """An amount for each of some tokens of one row."""

    row: int
    tokens: Int64Array
    amounts: NDArray[np.floating[Any]]


class Edits(NamedTuple):
    """All edits of a kind, on the device: an amount for each of some places of the logits."""

    rows: "Tensor"
    tokens: "Tensor"
    amounts: "Tensor"


def edit(logits: "Tensor", states: Sequence[SamplingState]) -> None:
    """Apply penalties, bias and the min_tokens mask, in this order. Modifies `logits` [S, vocab]."""
    if repeated := list(_repetitions(states)):
        rows, tokens, penalties = _on_device(repeated, logits)
        scores, penalties = logits[rows, tokens], penalties.float()
        logits[rows, tokens] = (scores * penalties).where(scores < 0, scores / penalties)
    if generated := list(_frequencies(states)):
        rows, tokens, amounts = _on_device(generated, logits)
        logits[rows, tokens] = (logits[rows, tokens].double() - amounts).float()
    if biased := list(_biases(states)):
        rows, tokens, amounts = _on_device(biased, logits)
        logits.index_put_((rows, tokens), amounts.float(), accumulate=True)
    if barred := list(_early_stops(states)):
        rows, tokens, amounts = _on_device(barred, logits)
        logits[rows, tokens] = amounts.float()


def _repetitions(states: Sequence[SamplingState]) -> Iterator[Edit]:
    for row, state in enumerate(states):
        if (penalty := state.params.repetition_penalty) != 1.0:
            tokens = np.unique(np.asarray(state.tokens, np.int64))
            yield Edit(row, tokens, np.full(len(tokens), penalty))


def _frequencies(states: Sequence[SamplingState]) -> Iterator[Edit]:
    for row, state in enumerate(states):
        params = state.params
        if params.presence_penalty or params.frequency_penalty:
            generated = np.asarray(state.tokens[state.prompt_len :], np.int64)
            tokens, counts = np.unique(generated, return_counts=True)
            yield Edit(row, tokens, params.presence_penalty + params.frequency_penalty * counts)


def _biases(states: Sequence[SamplingState]) -> Iterator[Edit]:
    for row, state in enumerate(states):
        if state.params.logit_bias:
            tokens, amounts = zip(*state.params.logit_bias, strict=True)
            yield Edit(row, np.array(tokens, np.int64), np.array(amounts, np.float64))


def _early_stops(states: Sequence[SamplingState]) -> Iterator[Edit]:
    for row, state in enumerate(states):
        if len(state.tokens) - state.prompt_len < state.params.min_tokens:
            tokens = np.array(list(state.stop_ids), np.int64)
            yield Edit(row, tokens, np.full(len(tokens), -math.inf))


def _on_device(edits: Sequence[Edit], logits: "Tensor") -> Edits:
    columns = (
        np.concatenate([np.full_like(tokens, row) for row, tokens, _ in edits]),
        np.concatenate([edit.tokens for edit in edits]),
        np.concatenate([edit.amounts for edit in edits]),
    )
    return Edits(*(to_device(column, logits.device) for column in columns))
