"""The engine on a GPU: it binds a step, runs it, samples where the logits are, and swaps slabs beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from jetway.builder.manifest import Manifest
from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.base import Int32Array, Sampled, StepBatch, SynchronousEngine
from jetway.runtime.executor.description import describe
from jetway.runtime.executor.trt_bindings import DeviceMemory, StepBinder
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.scheduler.plan import EngineDescription

from .pools import SlabPools
from .runner import StepRunner


class TensorRtEngine(SynchronousEngine):
    """An Engine of one rank. `load.py` makes it."""

    def __init__(self, manifest: Manifest, layout: KvLayout, runner: StepRunner, pools: SlabPools) -> None:
        """Raises ConfigError for an engine that asks for what a step does not have."""
        self._manifest = manifest
        self._runner = runner
        self._pools = pools
        self._binder = StepBinder(runner.contexts.ports, layout, DeviceMemory(kv_pool=pools.address))

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
        with _errors_of("a copy to the host pool"):
            self._pools.copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        with _errors_of("a copy to the device pool"):
            self._pools.copy_in(host_blocks, device_blocks)

    def execute(self, batch: StepBatch) -> Sampled:
        compute = self._runner.contexts.compute
        step = self._binder.bind(batch)
        with _errors_of("the step"):
            asked = compute.record()
            self._pools.before(batch, compute)
            begun = compute.record()
            sampled = self._runner.run(step, batch.sample_states)
            return replace(sampled, copy_wait_s=asked.seconds_until(begun))


@contextmanager
def _errors_of(what: str) -> Iterator[None]:
    """Translate torch's; CUDA's own reach us as these."""
    try:
        yield
    except RuntimeError as error:
        raise EngineFailed(f"{what} failed on the GPU: {error}") from error
