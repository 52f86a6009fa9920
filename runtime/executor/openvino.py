"""The CPU engine: an OpenVINO model with paged attention over pools that we own (contracts/openvino.md)."""

from pathlib import Path
from typing import Self

from jetway.scheduler.plan import EngineDescription

from .base import Int32Array, Sampled, StepBatch, SynchronousEngine
from .openvino_model import PagedModel, Resources
from .sampling import sample


class OpenVinoEngine(SynchronousEngine):
    """A whole model in this process."""

    def __init__(self, model: PagedModel) -> None:
        self._model = model

    @classmethod
    def load(cls, directory: Path, resources: Resources) -> Self:
        """The engine of a built directory. Raises ConfigError as `PagedModel.load` does."""
        return cls(PagedModel.load(directory, resources))

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._model.eos_token_ids

    def describe(self) -> EngineDescription:
        return self._model.describe()

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        self._model.pools.copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        self._model.pools.copy_in(host_blocks, device_blocks)

    def execute(self, batch: StepBatch) -> Sampled:
        return sample(self._model.infer(batch), batch.sample_states)
