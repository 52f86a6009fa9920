"""From logits to tokens that the next step can be fed with, on the device."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jetway.builder.manifest import Manifest
from jetway.runtime.executor.base import Int64Array, SamplingState
from jetway.runtime.executor.trt_bindings import BoundStep

from .device import Device
from .sampling import Choice, choose
from .transfer import to_device

if TYPE_CHECKING:
    from torch import Tensor


class StepSampler:
    """Reads the logits of steps, and holds the token last sampled in each slot. All it asks for is the current stream's."""

    def __init__(self, logits: "Tensor", manifest: Manifest, device: Device) -> None:
        """`logits` [most rows, padded vocabulary] are the engine's output. Raises ConfigError where there is no room."""
        import torch

        self._logits = logits
        self._vocab_size = manifest.vocab_size
        self._last_tokens = device.zeros(manifest.max_batch_size * np.dtype(np.int32).itemsize).view(torch.int32)

    def fill(self, step: BoundStep, input_ids: "Tensor") -> None:
        """Put what was sampled last where the step needs it. Modifies `input_ids`."""
        input_ids[self._there(step.holes)] = self._last_tokens[self._there(step.hole_slots)]

    def sample(self, step: BoundStep, states: Sequence[SamplingState]) -> Choice:
        """A token for each of the states' rows."""
        rows = self._logits[self._there(step.logits_rows), : self._vocab_size]
        choice = choose(rows.float(), states)
        self._last_tokens[self._there(step.sample_slots)] = choice.tokens.int()
        return choice

    def _there(self, indices: Int64Array) -> "Tensor":
        """The indices on the device."""
        return to_device(indices, self._logits.device)
