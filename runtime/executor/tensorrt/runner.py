"""One step on the device: its inputs go there, the engine runs, the sampler chooses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jetway.builder.manifest import Manifest
from jetway.runtime.executor.base import Int64Array, Sampled, SamplingState
from jetway.runtime.executor.trt_bindings import BoundStep
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_tensors import LOGITS

from .contexts import EngineContexts
from .device import Device
from .inputs import InputBuffers
from .sampling import choose, report

if TYPE_CHECKING:
    from torch import Tensor


class StepRunner:
    """Holds all memory of a step beside the KV pool: scratch, inputs, logits, and the token last sampled in each slot."""

    def __init__(self, contexts: EngineContexts, manifest: Manifest, layout: KvLayout, device: Device) -> None:
        """Raises ConfigError where there is no room for it."""
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
        self._inputs = InputBuffers(device, dims)
        port = next(port for port in contexts.ports if port.name == LOGITS)
        memory = device.zeros(rows * port.shape[-1] * np.dtype(port.dtype).itemsize)
        self._logits = memory.view(getattr(torch, port.dtype)).view(rows, port.shape[-1])
        self._last_tokens = device.zeros(rows * np.dtype(np.int32).itemsize).view(torch.int32)

    def run(self, step: BoundStep, states: Sequence[SamplingState]) -> Sampled:
        """Run the step and sample its wanted rows. Returns once the device is done with it."""
        compute = self.contexts.compute
        inputs = self._inputs.send(step.device, compute)
        if len(step.holes):
            with compute.current():
                inputs["input_ids"][self._there(step.holes)] = self._last_tokens[self._there(step.hole_slots)]
        self.contexts.run(inputs, step.host, self._logits[: step.num_rows])
        sampled = Sampled((), {}, {})
        if states:
            with compute.current():
                sampled = self._sample(step, states)
        compute.synchronize()
        return sampled

    def _sample(self, step: BoundStep, states: Sequence[SamplingState]) -> Sampled:
        rows = self._logits[self._there(step.logits_rows), : self._vocab_size]
        choice = choose(rows.float(), states)
        self._last_tokens[self._there(step.sample_slots)] = choice.tokens.int()
        return report(choice, states)

    def _there(self, indices: Int64Array) -> "Tensor":
        """The indices on the device."""
        import torch

        return torch.from_numpy(indices).to(self._logits.device)
