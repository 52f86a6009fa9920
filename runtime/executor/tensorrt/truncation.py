"""Top-k, top-p and min-p over all rows at once, by masks; what is kept is what `executor/sampling.py` keeps."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jetway.runtime.executor.sampling import FIRST_NUCLEUS, NOISE_SPREAD
from jetway.scheduler.request import SamplingParams

from .transfer import to_device

if TYPE_CHECKING:
    from torch import Tensor


def truncated(scaled: "Tensor", params: Sequence[SamplingParams]) -> "Tensor":
    """The mask [R, vocab] of the tokens that may be drawn; `scaled` are logits over temperature, the best of a row 0."""
    kept = scaled >= _column([-NOISE_SPREAD], scaled)
    kept = _within_top_k(scaled, kept, [each.top_k for each in params])
    kept = _within_top_p(scaled, kept, [each.top_p for each in params])
    if any(each.min_p for each in params):
        floors = [math.log(each.min_p) if each.min_p else -math.inf for each in params]
        kept &= scaled >= _column(floors, scaled)
    return kept


def _within_top_k(scaled: "Tensor", kept: "Tensor", top_k: Sequence[int]) -> "Tensor":
    """Of `kept`, each row's best k and all that tie with the last of them; k is 0 where nothing bounds it."""
    width = scaled.shape[1]
    counts = [k if k < width else 0 for k in top_k]
    if not any(counts):
        return kept
    best = scaled.where(kept, -math.inf).topk(max(counts)).values
    lasts = _column([max(k - 1, 0) for k in counts], scaled).long()
    free = _column([k == 0 for k in counts], scaled).bool()
    return kept & (free | (scaled >= best.gather(1, lasts)))


def _within_top_p(scaled: "Tensor", kept: "Tensor", top_p: Sequence[float]) -> "Tensor":
    """Of `kept`, each row's smallest set of best tokens whose probability reaches p; among ties the first."""
    bounded = [row for row, p in enumerate(top_p) if p < 1.0]
    if not bounded:
        return kept
    rows = to_device(np.array(bounded), scaled.device)
    candidates = scaled[rows].where(kept[rows], -math.inf)
    wanted = _column([top_p[row] for row in bounded], scaled) * candidates.exp().sum(1, keepdim=True)
    ranked, sums = _ranked_until(candidates, wanted)
    # In rank order the sum may fall short of the whole by rounding: then the last that is kept.
    last = (sums < wanted).sum(1, keepdim=True).minimum(kept[rows].sum(1, keepdim=True) - 1).clamp(min=0)
    edge = ranked.gather(1, last)
    above, ties = candidates > edge, candidates == edge
    num_ties = last + 1 - above.sum(1, keepdim=True)
    kept[rows] = above | (ties & (ties.cumsum(1) <= num_ties))
    return kept


def _ranked_until(candidates: "Tensor", wanted: "Tensor") -> "tuple[Tensor, Tensor]":
    """The best of each row, best first, and their exponentials' running sums, as many as it takes to reach `wanted`."""
    count, width = FIRST_NUCLEUS, candidates.shape[1]
    while True:
        ranked = candidates.topk(min(count, width)).values
        sums = ranked.exp().cumsum(1)
        if count >= width or bool((sums[:, -1:] >= wanted).all()):
            return ranked, sums
        count *= 8


def _column(values: Sequence[float], like: "Tensor") -> "Tensor":
    """[R, 1], float32, where `like` is."""
    return to_device(np.array(values, np.float32), like.device)[:, None]
