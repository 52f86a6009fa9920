"""How long steps and copies take, fitted while they run.

The step-time model is Vidur's shape reduced to four terms (contracts/field.md section 3, "Design"):

    t = a + b * prefill tokens + c * decode sequences + d * context tokens

fitted by recursive least squares that forgets. It answers what a prefill costs, and how many tokens fit an objective.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FORGETTING = 0.998  # per step: the last 500 steps count
PRIOR_VARIANCE = 1e3  # of each coefficient, in scaled units: nothing is known
SCALES = np.array([1.0, 1e2, 1e1, 1e4])  # brings the four features to about 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one step computes and copies."""

    num_prefill_tokens: int
    num_decodes: int
    num_context_tokens: int  # over all rows, what attention reads
    num_copied_blocks: int = 0

    @property
    def features(self) -> NDArray[np.float64]:
        """[4], scaled."""
        raw = np.array([1.0, self.num_prefill_tokens, self.num_decodes, self.num_context_tokens])
        scaled: NDArray[np.float64] = raw / SCALES
        return scaled

    @property
    def num_tokens(self) -> int:
        return self.num_prefill_tokens + self.num_decodes


class StepTimeModel:
    """Predicts a step's seconds, copies left out."""

    def __init__(self) -> None:
        self._theta = np.zeros(len(SCALES))
        self._covariance = np.eye(len(SCALES)) * PRIOR_VARIANCE
        self.num_observed = 0

    def observe(self, work: StepWork, elapsed_s: float) -> None:
        x = work.features
        gain = self._covariance @ x
        gain /= FORGETTING + x @ gain
        self._theta += gain * (elapsed_s - x @ self._theta)
        covariance = self._covariance - np.outer(gain, x @ self._covariance)
        if np.trace(covariance) < len(SCALES) * PRIOR_VARIANCE:
            covariance /= FORGETTING  # only while informed: what is never seen would wind up without bound
        self._covariance = (covariance + covariance.T) / 2  # rounding must not make it lopsided
        self.num_observed += 1

    def predict_s(self, work: StepWork) -> float:
        return float(work.features @ np.maximum(self._theta, 0.0))

    def prefill_s(self, num_tokens: int) -> float:
        """What `num_tokens` more prefill tokens add to steps that run anyway."""
        return float(max(self._theta[1], 0.0) / SCALES[1]) * num_tokens


class CopyRate:
    """Seconds a block takes between the tiers, over the last few hundred copied blocks."""

    def __init__(self) -> None:
        self._num_blocks = 0.0
        self._elapsed_s = 0.0

    def observe(self, num_blocks: int, elapsed_s: float) -> None:
        if num_blocks:
            keep = 0.99**num_blocks
            self._num_blocks = self._num_blocks * keep + num_blocks
            self._elapsed_s = self._elapsed_s * keep + elapsed_s

    def copy_s(self, num_blocks: int) -> float:
        """0 while nothing was copied: trying is how the rate gets known."""
        return self._elapsed_s / self._num_blocks * num_blocks if self._num_blocks else 0.0


@dataclass(slots=True)
class Estimates:
    """Everything that is measured while the engine runs."""

    steps: StepTimeModel = field(default_factory=StepTimeModel)
    copies: CopyRate = field(default_factory=CopyRate)

    def observe(self, work: StepWork, *, elapsed_s: float, copied_s: float) -> None:
        self.copies.observe(work.num_copied_blocks, copied_s)
        self.steps.observe(work, elapsed_s - copied_s)

    def swap_is_cheaper(self, num_copies: int, num_tokens: int) -> bool:
        """Whether copying so many blocks, out and back together, costs less than computing so many tokens again."""
        return self.copies.copy_s(num_copies) <= self.steps.prefill_s(num_tokens)

    def prefill_tokens_within(self, objective_s: float, num_decodes: int, num_context_tokens: int) -> int:
        """Prefill tokens that fit beside these decodes into a step of so many seconds (Sarathi-Serve's budget)."""
        base_s = self.steps.predict_s(
            StepWork(num_prefill_tokens=0, num_decodes=num_decodes, num_context_tokens=num_context_tokens)
        )
        token_s = self.steps.prefill_s(1)
        return int(max(0.0, objective_s - base_s) / token_s) if token_s else 1 << 30
