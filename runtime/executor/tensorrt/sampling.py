"""The sampler where the logits are: `executor/sampling.py` in torch, all rows at once.

Its tokens are those of the numpy one, whose docstrings say what is computed and why; only where two tokens' scores
differ by less than float32 rounds may they part. Logits never come to the host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jetway.runtime.executor.base import Sampled, SamplingState
from jetway.runtime.executor.noise import Float32Array, noise_keys
from jetway.runtime.executor.sampling import MIN_TEMPERATURE
from jetway.scheduler.plan import TokenLogprobs

from .edits import edit
from .noise import gumbel_noise
from .truncation import truncated

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Choice:
    """What was sampled, still on the device."""

    logits: "Tensor"  # [S, vocab] edited
    peaks: "Tensor"  # [S] the best logit of each row
    tokens: "Tensor"  # [S] int64; meaningless where the peak is not finite


def sample_from_host(logits: Float32Array, states: Sequence[SamplingState], device: str) -> Sampled:
    """Both of the below for logits that a test or the doctor has; `device` as torch names it."""
    import torch

    return report(choose(torch.from_numpy(logits.copy()).to(device), states), states)


def choose(logits: "Tensor", states: Sequence[SamplingState]) -> Choice:
    """A token for each row of `logits` [S, vocab], float32. Modifies `logits`."""
    import torch

    edit(logits, states)
    tokens = logits.argmax(1)  # where a row holds NaN, argmax finds it
    peaks = logits.gather(1, tokens[:, None])[:, 0]
    drawn = [row for row, state in enumerate(states) if not state.params.greedy]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        tokens[rows] = _draw(logits[rows], peaks[rows], [states[row] for row in drawn])
    return Choice(logits, peaks, tokens)


def _draw(logits: "Tensor", peaks: "Tensor", states: Sequence[SamplingState]) -> "Tensor":
    """[R] one token of each row's softmax(logits / temperature), truncated."""
    import torch

    temperatures = torch.tensor([max(state.params.temperature, MIN_TEMPERATURE) for state in states])
    scaled = (logits - peaks[:, None]) / temperatures.to(logits.device)[:, None]
    keys = torch.from_numpy(noise_keys(states).view(np.int64)).to(logits.device)
    rows, tokens = truncated(scaled, [state.params for state in states]).nonzero(as_tuple=True)
    scores = torch.full_like(scaled, -math.inf)
    scores[rows, tokens] = scaled[rows, tokens] + gumbel_noise(keys[rows], tokens)
    return scores.argmax(1)


def report(choice: Choice, states: Sequence[SamplingState]) -> Sampled:
    """The choice on the host. Returns once the device has made it."""
    peaks = choice.peaks.tolist()
    failures = {i: f"the best logit is {peak}" for i, peak in enumerate(peaks) if not math.isfinite(peak)}
    asking = [i for i, state in enumerate(states) if state.params.logprobs is not None and i not in failures]
    logprobs = _logprobs(choice, asking, [states[i].params.logprobs or 0 for i in asking]) if asking else []
    return Sampled(choice.tokens.tolist(), dict(zip(asking, logprobs, strict=True)), failures)


def _logprobs(choice: Choice, asking: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """Of each asking row's token and its `count` best tokens, from the edited logits."""
    import torch

    rows = torch.tensor(asking, device=choice.logits.device)
    logits = choice.logits[rows]
    shifted = logits - choice.peaks[rows, None]
    totals = shifted.exp().sum(1, keepdim=True).log()
    chosen = (shifted.gather(1, choice.tokens[rows, None]) - totals)[:, 0].tolist()
    # Each row's best, and all that tie with the last of them: which ones are meant is settled by their ids.
    best = logits.topk(min(max(1, *counts), logits.shape[1])).values
    lasts = torch.tensor([min(max(count, 1), best.shape[1]) - 1 for count in counts], device=logits.device)
    owners, tokens = (logits >= best.gather(1, lasts[:, None])).nonzero(as_tuple=True)
    found = (logits[owners, tokens], shifted[owners, tokens] - totals[owners, 0], tokens, owners)
    scores, logprobs, ids, places = (tensor.cpu().numpy() for tensor in found)
    order = np.lexsort((ids, -scores, places))
    begins = np.searchsorted(places, np.arange(len(counts)))
    tops = [order[begin : begin + count] for begin, count in zip(begins, counts, strict=True)]
    return [
        TokenLogprobs(one, ids[top].tolist(), logprobs[top].tolist()) for one, top in zip(chosen, tops, strict=True)
    ]
