"""An OpenVINO model, or a stage of it, over pools that we own: batches in, hidden states or logits out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import openvino as ov

from jetway.builder.manifest import OPENVINO_MODEL_FILE, Manifest, ManifestError, read
from jetway.runtime.errors import ConfigError, EngineFailed
from jetway.scheduler.plan import EngineDescription

from .base import StepBatch
from .description import describe, device_blocks
from .noise import Float32Array
from .openvino_cut import HIDDEN_STATES, WHOLE, Stage, stage_model
from .openvino_graph import paged_model
from .pools import BlockPools

# The model's inputs that are arrays of a StepBatch, under the same name.
BATCH_INPUTS = (
    "input_ids",
    "position_ids",
    "past_lens",
    "subsequence_begins",
    "block_indices",
    "block_indices_begins",
    "sample_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What an engine may take. Its pools are those of all stages together, each of which holds its layers' share."""

    kv_cache_memory: int = 0  # bytes of the device pool, unless num_device_blocks says
    num_device_blocks: int | None = None
    num_host_blocks: int = 0
    threads: int = 0  # of each stage; 0: all cores


class PagedModel:
    """The device pool's tensors are inputs of the model, which writes new KV into them."""

    def __init__(self, manifest: Manifest, stage: Stage, compiled: ov.CompiledModel, pools: BlockPools) -> None:
        self.manifest = manifest
        self.stage = stage
        self.pools = pools
        self._request = compiled.create_infer_request()
        self._inputs = {name for port in compiled.inputs for name in port.get_names()}
        for port, tensor in zip(_pool_ports(compiled), pools.device, strict=True):
            self._request.set_tensor(port, ov.Tensor(tensor, shared_memory=True))

    @classmethod
    def load(cls, directory: Path, resources: Resources, stage: Stage = WHOLE) -> Self:
        """The stage of a built directory; the weights of other stages are not loaded.

        Raises ConfigError for a directory that holds no engine for the CPU, or none of so many stages, and for pools
        that do not fit.
        """
        try:
            manifest = read(directory)
            model = paged_model(directory / OPENVINO_MODEL_FILE, manifest.sliding_windows)
            compiled = _compile(model if stage == WHOLE else stage_model(model, stage), manifest, resources.threads)
        except (ManifestError, RuntimeError, ConfigError) as error:
            raise ConfigError(f"the engine in {directory} cannot be loaded: {error}") from error
        num_device_blocks = device_blocks(
            manifest, kv_cache_memory=resources.kv_cache_memory, num_device_blocks=resources.num_device_blocks
        )
        ports = _pool_ports(compiled)
        shapes = [tuple(size.get_length() for size in port.partial_shape[1:]) for port in ports]
        pools = BlockPools(shapes, ports[0].element_type.to_dtype(), num_device_blocks, resources.num_host_blocks)
        num_layers = len(stage.layers(manifest.num_hidden_layers))
        if pools.block_bytes * manifest.num_hidden_layers != manifest.block_bytes * num_layers:
            raise ConfigError(
                f"{directory}: the manifest's block has {manifest.block_bytes} bytes in "
                f"{manifest.num_hidden_layers} layers, the model's {pools.block_bytes} in {num_layers}"
            )
        return cls(manifest, stage, compiled, pools)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self.manifest.tokens.eos_ids)

    def describe(self) -> EngineDescription:
        """The engine that the stage is of: each of its blocks is over all stages."""
        return describe(
            self.manifest,
            kind="openvino",
            num_device_blocks=self.pools.num_device_blocks,
            num_host_blocks=self.pools.num_host_blocks,
            num_stages=self.stage.num_stages,
        )

    def infer(self, batch: StepBatch, hidden_states: Float32Array | None = None) -> Float32Array:
        """Logits [S, vocab] of the last stage, else hidden states [T, 1, hidden_size]; good until the next call.

        `hidden_states` are what the stage before gave, unless this is the first. Raises EngineFailed.
        """
        arrays = {name: getattr(batch, name) for name in BATCH_INPUTS}
        arrays["max_context_len"] = np.array(batch.max_context_len, np.int32)
        if hidden_states is not None:
            arrays[HIDDEN_STATES] = hidden_states
        for name in self._inputs & arrays.keys():
            self._request.set_tensor(name, ov.Tensor(arrays[name]))
        try:
            self._request.infer()
        except RuntimeError as error:
            raise EngineFailed(f"the step failed in OpenVINO: {error}") from error
        result: Float32Array = self._request.get_output_tensor().data
        return result.reshape(len(batch.sample_states), self.manifest.vocab_size) if self.stage.is_last else result


def _compile(model: ov.Model, manifest: Manifest, threads: int) -> ov.CompiledModel:
    properties = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": manifest.kv_cache_dtype,
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
    }
    return ov.Core().compile_model(model, "CPU", properties)


def _pool_ports(compiled: ov.CompiledModel) -> list[ov.Output]:
    """The inputs that are tensors of the device pool; the compiled model knows their shape and type."""
    return [port for port in compiled.inputs if port.get_any_name().startswith(("key_cache.", "value_cache."))]
