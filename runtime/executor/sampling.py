"""The sampler of engines whose logits come to the host: DESIGN section 5, in numpy.

A row goes through penalties, bias and the min_tokens mask, then temperature, top-k, top-p and min-p (the order of
Hugging Face's `generate`), and ends in Gumbel-max: argmax of logit / temperature + noise. The noise of a token is a
function of (seed, sequence index, position, token id) alone, so neither the batch nor the truncation moves it.
"""

import math
from collections.abc import Sequence

import numpy as np

from jetway.scheduler.plan import TokenLogprobs
from jetway.scheduler.request import SamplingParams

from .base import Int64Array, Sampled, SamplingState
from .noise import Float32Array, gumbel_noise, noise_keys

# Below this the noise cannot decide between logits that f32 tells apart; it keeps the division finite.
MIN_TEMPERATURE = 1e-5
# Noise lies in [-2.9, 22.9] (see `noise.py`): a token further than this below the best can never win. All such
# tokens together hold less probability than f32 resolves, so top-p may ignore them too.
NOISE_SPREAD = 25.8
# top-p sorts this many of the best tokens first, and eight times as many whenever they do not hold enough.
FIRST_NUCLEUS = 64


@np.errstate(over="ignore")  # a logit near the end of f32 may overflow to -inf, which is what it means
def sample(logits: Float32Array, states: Sequence[SamplingState]) -> Sampled:
    """Choose a token for each row of `logits` [S, vocab]. Modifies `logits`.

    A row whose best logit is NaN or infinite fails alone.
    """
    for row, state in zip(logits, states, strict=True):
        _edit(row, state)
    best = logits.argmax(axis=1)  # where a row holds NaN, argmax finds it
    tokens, peaks = best.tolist(), logits[np.arange(len(states)), best].tolist()
    failures = {i: f"the best logit is {peak}" for i, peak in enumerate(peaks) if not math.isfinite(peak)}
    drawn = [i for i, state in enumerate(states) if not state.params.greedy and i not in failures]
    for i, key in zip(drawn, noise_keys([states[i] for i in drawn]), strict=True):
        tokens[i] = _draw(logits[i], peaks[i], states[i].params, key)
    logprobs = {
        i: _logprobs(logits[i], peaks[i], tokens[i], state.params.logprobs)
        for i, state in enumerate(states)
        if state.params.logprobs is not None and i not in failures
    }
    return Sampled(tokens, logprobs, failures)


def _edit(row: Float32Array, state: SamplingState) -> None:
    """Apply penalties, bias and the min_tokens mask, in this order. Modifies `row`."""
    params = state.params
    if params.repetition_penalty != 1.0:
        seen = np.asarray(state.tokens)
        scores = row[seen]
        row[seen] = np.where(scores < 0, scores * params.repetition_penalty, scores / params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        generated, counts = np.unique(np.asarray(state.tokens[state.prompt_len :], np.int64), return_counts=True)
        row[generated] -= params.presence_penalty + params.frequency_penalty * counts
    for token, bias in params.logit_bias:
        row[token] += bias
    if len(state.tokens) - state.prompt_len < params.min_tokens:
        row[list(state.stop_ids)] = -np.inf


def _draw(row: Float32Array, peak: float, params: SamplingParams, key: np.uint64) -> int:
    """One token of softmax(row / temperature), truncated; `peak` is the row's best logit."""
    scaled = (row - peak) / max(params.temperature, MIN_TEMPERATURE)
    tokens = np.flatnonzero(scaled >= -NOISE_SPREAD)
    if 0 < params.top_k < len(tokens):
        tokens = tokens[best_indices(scaled[tokens], params.top_k)]
    if params.top_p < 1.0:
        tokens = tokens[_nucleus(scaled[tokens], params.top_p)]
    if params.min_p > 0.0:
        tokens = tokens[scaled[tokens] >= math.log(params.min_p)]
    return int(tokens[(scaled[tokens] + gumbel_noise(key, tokens)).argmax()])


def best_indices(values: Float32Array, count: int) -> Int64Array:
    """Indices of the `count` largest values and of all that tie with the last of them, ascending."""
    if count >= len(values):
        return np.arange(len(values))
    return np.flatnonzero(values >= np.partition(values, -count)[-count])


def _ranked(values: Float32Array, count: int) -> Int64Array:
    """Like `best_indices`, but largest first; ties in ascending order of index."""
    indices = best_indices(values, count)
    return indices[np.argsort(-values[indices], kind="stable")]


def _nucleus(values: Float32Array, top_p: float) -> Int64Array:
    """Indices of the smallest set of best tokens whose probability reaches `top_p`; among ties the first."""
    wanted = top_p * np.exp(values).sum()
    count = FIRST_NUCLEUS
    while True:
        ranked = np.sort(np.partition(values, -count)[-count:] if count < len(values) else values)[::-1]
        last = int(np.searchsorted(np.cumsum(np.exp(ranked)), wanted))
        if last < len(ranked) or len(ranked) == len(values):
            break
        count *= 8
    last = min(last, len(ranked) - 1)  # the sum in rank order may fall short of the whole by rounding
    above, ties = np.flatnonzero(values > ranked[last]), np.flatnonzero(values == ranked[last])
    return np.concatenate((above, ties[: last + 1 - len(above)]))


def _logprobs(row: Float32Array, peak: float, token: int, count: int) -> TokenLogprobs:
    """Of `token` and the `count` best tokens, from the edited logits."""
    shifted = row - peak
    log_total = np.log(np.exp(shifted).sum())
    top = _ranked(row, count)[:count] if count else np.empty(0, np.int64)
    return TokenLogprobs(float(shifted[token] - log_total), top.tolist(), (shifted[top] - log_total).tolist())
