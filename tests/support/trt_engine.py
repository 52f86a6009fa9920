"""An Engine whose steps go through trt_bindings to the reference interpreter: a TensorRT engine without the device."""

from dataclasses import replace

import numpy as np

from jetway.runtime.executor.base import Int32Array, Sampled, StepBatch, SynchronousEngine
from jetway.runtime.executor.sampling import sample
from jetway.runtime.executor.trt_bindings import DeviceMemory, StepBinder
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_rank import RankPart
from jetway.runtime.executor.trt_tensors import EnginePort, Tensor
from jetway.scheduler.plan import EngineDescription
from tests.support.trt_contract import ContractViolation, check_chunks
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


class InterpretedEngine(SynchronousEngine):
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
        self._slab_bytes = mutation.slab_bytes(self._layout)
        self._host = np.zeros((num_host_blocks, self._slab_bytes), np.uint8)
        ports = [EnginePort(name=p.name, dtype=p.dtype, shape=p.shape, is_input=p.is_input) for p in interpreter.ports]
        alone = RankPart(rank=0, tp_size=1, num_stages=1, num_layers=layout.num_layers)
        self._binder = StepBinder(ports, alone, self._layout, DeviceMemory(kv_pool=interpreter.profile.pool_address))
        self._running: list[tuple[Tensor, Tensor]] = []  # of the step before: each tensor, and what it held
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
        blocks = self._mutation.copied_out(device_blocks)
        for device, host in zip(blocks.tolist(), host_blocks.tolist(), strict=True):
            self._host[host] = self._interpreter.read(self._address(device), self._slab_bytes)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        blocks = self._mutation.copied_in(device_blocks)
        for host, device in zip(host_blocks.tolist(), blocks.tolist(), strict=True):
            self._interpreter.write(self._address(device), self._host[host])

    def _address(self, block: int) -> int:
        return self._interpreter.profile.pool_address + block * self._slab_bytes

    def execute(self, batch: StepBatch) -> Sampled:
        self.num_steps += 1
        if self.num_steps % 2:
            batch = unseen(batch)
        step = self._mutation.bound(self._binder.bind(self._mutation.batch(batch)))
        self._end_last_step()
        self.num_holes += len(step.holes)
        step.device["input_ids"][step.holes] = self._last_tokens[step.hole_slots]
        profile = self._interpreter.profile
        self._running = [(tensor, tensor.copy()) for tensor in (*step.device.values(), *step.host.values())]
        logits = self._interpreter.run(step.device, step.host)
        check_chunks(step.device, step.host, step.logits_rows, profile)
        wanted = logits[step.logits_rows, : self._mutation.num_read_columns(profile.vocab_size)]
        sampled = sample(wanted, batch.sample_states)
        self._last_tokens[step.sample_slots] = sampled.tokens
        return sampled

    def _end_last_step(self) -> None:
        """The device may be at work until the next step is bound. Raises ContractViolation."""
        if not all(np.array_equal(tensor, held) for tensor, held in self._running):
            raise ContractViolation("a tensor of a step that runs has changed")


def unseen(batch: StepBatch) -> StepBatch:
    """The batch as it is while the host has not seen what was sampled last."""
    rows = np.flatnonzero(batch.past_lens >= batch.start_lens)
    input_ids = batch.input_ids.copy()
    input_ids[batch.subsequence_begins[rows]] = 0
    return replace(batch, input_ids=input_ids, pending_rows=rows)
