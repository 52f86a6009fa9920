"""One step on the device: its inputs go there, the engine runs, the sampler chooses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetway.builder.manifest import Manifest
from jetway.runtime.executor.base import SamplingState
from jetway.runtime.executor.trt_bindings import BoundStep
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_rank import RankPart
from jetway.runtime.executor.trt_tensors import HIDDEN_STATES_INPUT, TOKENS, EnginePort

from .contexts import EngineContexts
from .device import Device
from .inputs import InputBuffers
from .sampler import StepSampler
from .sampling import Choice

if TYPE_CHECKING:
    from torch import Tensor


class StepRunner:
    """Holds all memory of steps beside the KV pool: scratch, inputs, outputs, and what the sampler needs.

    There is one of all but the inputs: a step is sampled before the next is computed. Nothing here waits for the device,
    unless rows are drawn: how many tokens may be is known there only.
    """

    def __init__(
        self, contexts: EngineContexts, manifest: Manifest, layout: KvLayout, part: RankPart, device: Device
    ) -> None:
        """Raises ConfigError where there is no room for it."""
        self.contexts = contexts
        self.part = part
        dims = {
            "tokens": manifest.max_num_tokens,
            "rows": manifest.max_batch_size,
            "blocks": layout.max_blocks_per_seq,
            "cache_rows": 1,
            "window": manifest.max_seq_len,
        }
        self._inputs = InputBuffers(device, dims, part.max_launches)
        # Nobody reads or writes these here: the stages' networks hand hidden states on themselves.
        self._hidden_states_input: Tensor | None = None
        if not part.is_first_stage:
            port = next(port for port in contexts.ports if port.name == HIDDEN_STATES_INPUT)
            self._hidden_states_input = tensor_of(port, dims["tokens"], device)
        self._output = tensor_of(contexts.output, dims["rows" if part.is_last_stage else "tokens"], device)
        self._sampler = StepSampler(self._output, manifest, device) if part.is_last_stage else None

    def compute(self, step: BoundStep) -> None:
        """Ask for the step. The ones before it must have been sampled: it takes their tokens and overwrites the logits."""
        compute = self.contexts.compute
        inputs = self._inputs.send(step.device, compute)
        num_rows = step.num_tokens
        if self._sampler is not None:
            num_rows = step.num_rows
            if len(step.holes):
                with compute.current():
                    self._sampler.fill(step, inputs[TOKENS])
        if self._hidden_states_input is not None:
            inputs[HIDDEN_STATES_INPUT] = self._hidden_states_input[: step.num_tokens]
        self.contexts.run(inputs, step.host, self._output[:num_rows])

    def sample(self, step: BoundStep, states: Sequence[SamplingState]) -> Choice | None:
        """Ask for the choice of the step computed last, with all tokens of its states; None where another rank makes it."""
        if self._sampler is None or not states:
            return None
        with self.contexts.compute.current():
            return self._sampler.sample(step, states)


def tensor_of(port: EnginePort, num_rows: int, device: Device) -> "Tensor":
    """Memory of so many rows as the engine declares them."""
    import torch

    dtype: torch.dtype = getattr(torch, port.dtype)
    memory = device.zeros(num_rows * port.shape[-1] * dtype.itemsize)
    return memory.view(dtype).view(num_rows, port.shape[-1])
