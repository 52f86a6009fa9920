"""The engine on a GPU: it binds steps, launches them ahead, samples where the logits are, and swaps slabs beside it."""

import threading

from jetway.builder.manifest import Manifest
from jetway.runtime.executor.base import Int32Array, Launch, StepBatch
from jetway.runtime.executor.description import describe
from jetway.runtime.executor.pipeline import refuse_pending, tie_of
from jetway.runtime.executor.ranks import Ranks
from jetway.runtime.executor.trt_bindings import StepBinder
from jetway.scheduler.plan import EngineDescription

from .device import device_errors
from .launch import CopyWait, StepLaunch
from .pools import SlabPools, StepBlocks
from .runner import StepRunner


class TensorRtEngine:
    """An Engine, or one rank's part of it. `load.py` makes it.

    The device computes step N, samples it, computes step N + 1, and so on. A step is launched while the one before it
    computes, when the host lacks tokens that the sampler looks at; so it is sampled when somebody waits for it, who has
    collected those before it, and at the latest before the next is launched.
    """

    def __init__(
        self, manifest: Manifest, binder: StepBinder, runner: StepRunner, pools: SlabPools, ranks: Ranks | None
    ) -> None:
        """`ranks` are those of an engine of several."""
        self.max_launches = runner.part.max_launches
        self._manifest = manifest
        self._binder = binder
        self._runner = runner
        self._pools = pools
        self._tie = tie_of(ranks, runner.part.first_rank_of_last_stage)
        self._calls = threading.Lock()  # held by the thread that launches, or waits, while it asks the runner
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
            num_stages=self._runner.part.num_stages,
        )

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        with device_errors("a copy to the host pool"):
            self._pools.copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        with device_errors("a copy to the device pool"):
            self._pools.copy_in(host_blocks, device_blocks)

    def launch(self, batch: StepBatch) -> Launch:
        """Raises EngineFailed, in a pipeline also as `refuse_pending` does."""
        if self._runner.part.num_stages > 1:
            refuse_pending(batch)
        step, blocks = self._binder.bind(batch), StepBlocks.of(batch, self._manifest.tokens_per_block)
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
            return self._tie(self._last)
