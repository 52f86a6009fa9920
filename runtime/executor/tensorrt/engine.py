"""The engine on a GPU: it binds steps, launches them ahead, samples where the logits are, and swaps slabs beside it."""

import threading

from jetway.builder.manifest import Manifest
from jetway.runtime.executor.base import Int32Array, Launch, StepBatch
from jetway.runtime.executor.description import describe
from jetway.runtime.executor.trt_bindings import DeviceMemory, StepBinder
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.scheduler.plan import EngineDescription

from .device import device_errors
from .launch import CopyWait, StepLaunch
from .pools import SlabPools, StepBlocks
from .runner import StepRunner

MAX_LAUNCHES = 2


class TensorRtEngine:
    """An Engine of one rank. `load.py` makes it.

    The device computes step N, samples it, computes step N + 1, and so on. A step is launched while the one before it
    computes, so the host samples late: as soon as it knows all tokens of the step's sequences, which may be when it waits
    for it, and at the latest before it launches the next.
    """

    max_launches = MAX_LAUNCHES

    def __init__(self, manifest: Manifest, layout: KvLayout, runner: StepRunner, pools: SlabPools) -> None:
        """Raises ConfigError for an engine that asks for what a step does not have."""
        self._manifest = manifest
        self._tokens_per_block = layout.tokens_per_block
        self._runner = runner
        self._pools = pools
        self._binder = StepBinder(runner.contexts.ports, layout, DeviceMemory(kv_pool=pools.address))
        self._calls = (
            threading.Lock()
        )  # held by who asks the runner for something: launches and waits have a thread each
        self._last: StepLaunch | None = None

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self._manifest.tokens.eos_ids)

    def describe(self) -> EngineDescription:
        return describe(
            self._manifest,
            kind="tensorrt",
            num_device_blocks=self._pools.num_device_blocks,
            num_host_blocks=self._pools.num_host_blocks,
        )

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        with device_errors("a copy to the host pool"):
            self._pools.copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        with device_errors("a copy to the device pool"):
            self._pools.copy_in(host_blocks, device_blocks)

    def launch(self, batch: StepBatch) -> Launch:
        step, blocks = self._binder.bind(batch), StepBlocks.of(batch, self._tokens_per_block)
        compute = self._runner.contexts.compute
        with self._calls, device_errors("the step"):
            if self._last is not None:
                self._last.sample()
            asked = compute.record()
            self._pools.before(blocks, compute)
            begun = compute.record()
            self._runner.compute(step)
            self._pools.after(blocks, compute)
            self._last = StepLaunch(self._runner, step, batch.sample_states, CopyWait(asked, begun), self._calls)
            if not len(batch.pending_rows):
                self._last.sample()
            return self._last
