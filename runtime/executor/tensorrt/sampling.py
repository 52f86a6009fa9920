"""The sampler where the logits are: `executor/sampling.py` in torch, all rows at once.

Its tokens are those of the numpy one, whose docstrings say what is computed and why; only where two tokens' scores
differ by less than float32 rounds may they part. Logits never come to the host. What is asked of the device here is the
current stream's work, and only drawing waits for it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jetway.runtime.executor.base import Sampled, SamplingState
from jetway.runtime.executor.noise import Float32Array, noise_keys
from jetway.runtime.executor.sampling import MIN_TEMPERATURE
from jetway.scheduler.plan import TokenLogprobs

from .edits import edit
from .noise import gumbel_noise
from .transfer import to_device, to_host
from .truncation import truncated

if TYPE_CHECKING:
    from torch import Tensor

LAST_ID = 2**32 - 1  # no vocabulary reaches it


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of the rows that asked for them, on the host once the device is done."""

    rows: Sequence[int]  # [A]
    counts: Sequence[int]  # [A] of best tokens wanted
    chosen: "Tensor"  # [A] of each row's token
    top_tokens: "Tensor"  # [A, most wanted] best first, among ties the first
    top_logprobs: "Tensor"  # [A, most wanted]

    def report(self) -> dict[int, TokenLogprobs]:
        """By row."""
        columns = zip(
            *(self.rows, self.counts),
            *(tensor.tolist() for tensor in (self.chosen, self.top_tokens, self.top_logprobs)),
            strict=True,
        )
        return {row: TokenLogprobs(one, ids[:count], logprobs[:count]) for row, count, one, ids, logprobs in columns}


@dataclass(frozen=True, slots=True)
class Choice:
    """What was sampled."""

    tokens: "Tensor"  # [S] int64, on the device; meaningless where the peak is not finite
    host_tokens: "Tensor"  # the same, and the peaks, on the host once the device is done
    host_peaks: "Tensor"  # [S] the best logit of each row
    scores: Scores | None

    def report(self) -> Sampled:
        """The device must be done."""
        peaks = self.host_peaks.tolist()
        failures = {i: f"the best logit is {peak}" for i, peak in enumerate(peaks) if not math.isfinite(peak)}
        logprobs = self.scores.report() if self.scores else {}
        return Sampled(
            self.host_tokens.tolist(), {row: logprobs[row] for row in logprobs if row not in failures}, failures
        )


def sample_from_host(logits: Float32Array, states: Sequence[SamplingState], device: str) -> Sampled:
    """The choice for logits that a test or the doctor has; `device` as torch names it."""
    import torch

    choice = choose(torch.from_numpy(logits.copy()).to(device), states)
    if device != "cpu":
        torch.cuda.synchronize()
    return choice.report()


def choose(logits: "Tensor", states: Sequence[SamplingState]) -> Choice:
    """A token for each row of `logits` [S, vocab], float32. Modifies `logits`."""
    edit(logits, states)
    tokens = logits.argmax(1)  # where a row holds NaN, argmax finds it
    peaks = logits.gather(1, tokens[:, None])[:, 0]
    drawn = [row for row, state in enumerate(states) if not state.params.greedy]
    if drawn:
        rows = to_device(np.array(drawn), logits.device)
        tokens[rows] = _draw(logits[rows], peaks[rows], [states[row] for row in drawn])
    counts = {row: count for row, state in enumerate(states) if (count := state.params.logprobs) is not None}
    scores = _scores(logits, peaks, tokens, counts) if counts else None
    return Choice(tokens, to_host(tokens), to_host(peaks), scores)


def _draw(logits: "Tensor", peaks: "Tensor", states: Sequence[SamplingState]) -> "Tensor":
    """[R] one token of each row's softmax(logits / temperature), truncated."""
    import torch

    temperatures = np.array([max(state.params.temperature, MIN_TEMPERATURE) for state in states], np.float32)
    scaled = (logits - peaks[:, None]) / to_device(temperatures, logits.device)[:, None]
    keys = to_device(noise_keys(states).view(np.int64), logits.device)
    rows, tokens = truncated(scaled, [state.params for state in states]).nonzero(as_tuple=True)
    scores = torch.full_like(scaled, -math.inf)
    scores[rows, tokens] = scaled[rows, tokens] + gumbel_noise(keys[rows], tokens)
    return scores.argmax(1)


def _scores(logits: "Tensor", peaks: "Tensor", tokens: "Tensor", counts: Mapping[int, int]) -> Scores:
    """Of the rows of `counts`: each one's token and its so many best tokens, from the edited logits."""
    rows = to_device(np.array([*counts]), logits.device)
    asking = logits[rows]
    shifted = asking - peaks[rows, None]
    logprobs = shifted - shifted.exp().sum(1, keepdim=True).log()
    best = _best(asking, min(max(counts.values()), logits.shape[1]))
    return Scores(
        rows=[*counts],
        counts=[*counts.values()],
        chosen=to_host(logprobs.gather(1, tokens[rows, None])[:, 0]),
        top_tokens=to_host(best),
        top_logprobs=to_host(logprobs.gather(1, best)),
    )


def _best(logits: "Tensor", count: int) -> "Tensor":
    """[R, count] each row's best tokens, best first, among ties the first: topk alone takes ties as it likes."""
    import torch

    bits = (logits + 0.0).view(torch.int32)  # without a negative zero
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # as integers compare, so do the logits
    ids = torch.arange(logits.shape[1], device=logits.device)
    keys = (ordered.long() << 32) | (LAST_ID - ids)
    return LAST_ID - (keys.topk(count).values & LAST_ID)
