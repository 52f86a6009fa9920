"""One step on the device: its inputs go there, the engine runs, the sampler chooses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jetway.builder.manifest import Manifest
from jetway.runtime.executor.base import Int64Array, SamplingState
from jetway.runtime.executor.trt_bindings import BoundStep
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_tensors import LOGITS

from .contexts import EngineContexts
from .device import Device
from .inputs import InputBuffers
from .sampling import Choice, choose
from .transfer import to_device

if TYPE_CHECKING:
    from torch import Tensor


class StepRunner:
    """Holds all memory of steps beside the KV pool: scratch, inputs, logits, and the token last sampled in each slot.

    There is one of all but the inputs: a step is to be sampled before the next is computed. Nothing here waits for the
    device, unless rows are drawn: how many tokens may be is known there only.
    """

    def __init__(
        self, contexts: EngineContexts, manifest: Manifest, layout: KvLayout, device: Device, num_steps: int
    ) -> None:
        """`num_steps` may be on the device at once. Raises ConfigError where there is no room for it."""
        import torch

        self.contexts = contexts
        self._vocab_size = manifest.vocab_size
        rows = manifest.max_batch_size
        dims = {
            "tokens": manifest.max_num_tokens,
            "rows": rows,
            "blocks": layout.max_blocks_per_seq,
            "cache_rows": 1,
            "window": manifest.max_seq_len,
        }
        self._inputs = InputBuffers(device, dims, num_steps)
        port = next(port for port in contexts.ports if port.name == LOGITS)
        memory = device.zeros(rows * port.shape[-1] * np.dtype(port.dtype).itemsize)
        self._logits = memory.view(getattr(torch, port.dtype)).view(rows, port.shape[-1])
        self._last_tokens = device.zeros(rows * np.dtype(np.int32).itemsize).view(torch.int32)

    def compute(self, step: BoundStep) -> None:
        """Ask for the step. The ones before it must have been sampled: it takes their tokens and overwrites the logits."""
        compute = self.contexts.compute
        inputs = self._inputs.send(step.device, compute)
        if len(step.holes):
            with compute.current():
                inputs["input_ids"][self._there(step.holes)] = self._last_tokens[self._there(step.hole_slots)]
        self.contexts.run(inputs, step.host, self._logits[: step.num_rows])

    def sample(self, step: BoundStep, states: Sequence[SamplingState]) -> Choice:
        """Ask for the choice of the step computed last, with all tokens of its states."""
        with self.contexts.compute.current():
            rows = self._logits[self._there(step.logits_rows), : self._vocab_size]
            choice = choose(rows.float(), states)
            self._last_tokens[self._there(step.sample_slots)] = choice.tokens.int()
            return choice

    def _there(self, indices: Int64Array) -> "Tensor":
        """The indices on the device."""
        return to_device(indices, self._logits.device)
