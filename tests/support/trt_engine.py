"""An Engine whose steps go through trt_bindings to the reference interpreter: a TensorRT engine without the device."""

from dataclasses import replace

import numpy as np

from jetway.runtime.executor.base import Int32Array, Sampled, StepBatch
from jetway.runtime.executor.sampling import sample
from jetway.runtime.executor.trt_bindings import DeviceMemory, StepBinder
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_tensors import EnginePort
from jetway.scheduler.plan import EngineDescription
from tests.support.trt_interpreter import Interpreter
from tests.support.trt_llama import Llama
from tests.support.trt_mutation import NO_MUTATION, Mutation


def layout_of(model: Llama, interpreter: Interpreter) -> KvLayout:
    return KvLayout(
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        tokens_per_block=interpreter.profile.tokens_per_block,
        head_size=model.head_size,
        item_bytes=4,
        max_seq_len=interpreter.profile.max_seq_len,
    )


class InterpretedEngine:
    """Does what an engine on a GPU would do: binds, fills the holes, runs, samples, copies slabs.

    In every second step the sampled tokens are fed from the device, as if the host had not seen them yet.
    """

    eos_token_ids = frozenset[int]()

    def __init__(
        self, interpreter: Interpreter, layout: KvLayout, num_host_blocks: int, mutation: Mutation = NO_MUTATION
    ) -> None:
        self._interpreter = interpreter
        self._layout = mutation.layout(layout)
        self._mutation = mutation
        self._host = np.zeros((num_host_blocks, self._layout.block_bytes), np.uint8)
        ports = [EnginePort(name=p.name, dtype=p.dtype, shape=p.shape, is_input=p.is_input) for p in interpreter.ports]
        self._binder = StepBinder(ports, self._layout, DeviceMemory(kv_pool=interpreter.profile.pool_address))
        self._last_tokens = np.zeros(interpreter.profile.max_batch_size, np.int32)  # by slot, on the device
        self.num_steps = 0
        self.num_holes = 0

    def describe(self) -> EngineDescription:
        profile = self._interpreter.profile
        return EngineDescription(
            engine_id="interpreted",
            kind="tensorrt",
            version="0",
            block_size=profile.tokens_per_block,
            num_device_blocks=profile.num_blocks,
            num_host_blocks=len(self._host),
            block_bytes=self._layout.block_bytes,
            max_num_seqs=profile.max_batch_size,
            max_num_batched_tokens=profile.max_num_tokens,
            max_seq_len=profile.max_seq_len,
            vocab_size=profile.vocab_size,
            capabilities=("copy", "logprobs"),
        )

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        for device, host in zip(device_blocks.tolist(), host_blocks.tolist(), strict=True):
            self._host[host] = self._interpreter.read(self._address(device), self._layout.block_bytes)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        blocks = self._mutation.copied_in(device_blocks)
        for host, device in zip(host_blocks.tolist(), blocks.tolist(), strict=True):
            self._interpreter.write(self._address(device), self._host[host])

    def _address(self, block: int) -> int:
        return self._interpreter.profile.pool_address + block * self._layout.block_bytes

    def execute(self, batch: StepBatch) -> Sampled:
        self.num_steps += 1
        if self.num_steps % 2:
            batch = unseen(batch)
        step = self._mutation.bound(self._binder.bind(self._mutation.batch(batch)))
        self.num_holes += len(step.holes)
        step.device["input_ids"][step.holes] = self._last_tokens[step.hole_slots]
        logits = self._interpreter.run(step.device, step.host)
        wanted = logits[step.logits_rows, : self._interpreter.profile.vocab_size]
        sampled = sample(wanted, batch.sample_states)
        self._last_tokens[step.sample_slots] = sampled.tokens
        return sampled


def unseen(batch: StepBatch) -> StepBatch:
    """The batch as it is while the host has not seen what was sampled last."""
    rows = np.flatnonzero(batch.past_lens >= batch.start_lens)
    input_ids = batch.input_ids.copy()
    input_ids[batch.subsequence_begins[rows]] = 0
    return replace(batch, input_ids=input_ids, pending_rows=rows)
