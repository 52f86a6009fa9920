"""The CPU engine: an OpenVINO model with paged attention over pools that we own (contracts/openvino.md)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino._offline_transformations import paged_attention_transformation

from jetway.builder.manifest import OPENVINO_MODEL_FILE, Manifest, ManifestError, read
from jetway.runtime.errors import ConfigError, EngineFailed
from jetway.scheduler.plan import EngineDescription

from .base import Int32Array, Sampled, StepBatch, SynchronousEngine
from .description import describe, device_blocks
from .pools import BlockPools
from .sampling import sample

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
SLIDING_WINDOW_INPUT = 10  # of PagedAttentionExtension


class OpenVinoEngine(SynchronousEngine):
    """An Engine on the CPU. The device pool's tensors are inputs of the model, which writes new KV into them."""

    def __init__(self, manifest: Manifest, compiled: ov.CompiledModel, pools: BlockPools) -> None:
        self._manifest = manifest
        self._pools = pools
        self._request = compiled.create_infer_request()
        for port, tensor in zip(_pool_ports(compiled), pools.device, strict=True):
            self._request.set_tensor(port, ov.Tensor(tensor, shared_memory=True))

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        kv_cache_memory: int,
        num_device_blocks: int | None = None,
        num_host_blocks: int = 0,
        threads: int = 0,
    ) -> Self:
        """The engine of a built directory; `kv_cache_memory` in bytes, unless `num_device_blocks` says; threads 0: all.

        Raises ConfigError for a directory that holds no engine for the CPU, and for pools that do not fit.
        """
        try:
            manifest = read(directory)
            model = _paged_model(directory / OPENVINO_MODEL_FILE, manifest.sliding_windows)
            compiled = _compile(model, manifest, threads)
        except (ManifestError, RuntimeError) as error:
            raise ConfigError(f"the engine in {directory} cannot be loaded: {error}") from error
        num_device_blocks = device_blocks(
            manifest, kv_cache_memory=kv_cache_memory, num_device_blocks=num_device_blocks
        )
        ports = _pool_ports(compiled)
        shapes = [tuple(size.get_length() for size in port.partial_shape[1:]) for port in ports]
        pools = BlockPools(shapes, ports[0].element_type.to_dtype(), num_device_blocks, num_host_blocks)
        if pools.block_bytes != manifest.block_bytes:
            raise ConfigError(
                f"{directory}: the manifest's block has {manifest.block_bytes} bytes, the model's {pools.block_bytes}"
            )
        return cls(manifest, compiled, pools)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset(self._manifest.tokens.eos_ids)

    def describe(self) -> EngineDescription:
        return describe(
            self._manifest,
            kind="openvino",
            num_device_blocks=self._pools.num_device_blocks,
            num_host_blocks=self._pools.num_host_blocks,
        )

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        self._pools.copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        self._pools.copy_in(host_blocks, device_blocks)

    def execute(self, batch: StepBatch) -> Sampled:
        for name in BATCH_INPUTS:
            self._request.set_tensor(name, ov.Tensor(getattr(batch, name)))
        self._request.set_tensor("max_context_len", ov.Tensor(np.array(batch.max_context_len, np.int32)))
        try:
            self._request.infer()
        except RuntimeError as error:
            raise EngineFailed(f"the step failed in OpenVINO: {error}") from error
        logits = self._request.get_output_tensor().data
        return sample(logits.reshape(len(batch.sample_states), self._manifest.vocab_size), batch.sample_states)


def _paged_model(path: Path, sliding_windows: Sequence[int | None]) -> ov.Model:
    """The stateful model of an engine directory, with paged attention and logits for the rows of `sample_tokens`."""
    model = ov.Core().read_model(path)
    paged_attention_transformation(model)
    layers = [node for node in model.get_ordered_ops() if node.get_type_name() == "PagedAttentionExtension"]
    for layer, window in zip(layers, sliding_windows, strict=bool(sliding_windows)):
        if window is not None:
            layer.input(SLIDING_WINDOW_INPUT).replace_source_output(ops.constant(window, ov.Type.i32).output(0))
    head = model.get_results()[0]
    while head.get_type_name() != "MatMul":
        head = head.input_value(0).get_node()
    rows = ops.parameter(ov.PartialShape([-1]), ov.Type.i64, name="sample_tokens")
    rows.output(0).get_tensor().set_names({"sample_tokens"})
    hidden = ops.gather(head.input_value(0), rows, ops.constant(0, ov.Type.i64))
    head.input(0).replace_source_output(hidden.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    return model


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
