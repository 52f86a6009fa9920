"""A Hugging Face decoder as an OpenVINO model: traced, stateful, and ready for the paged-attention transformation.

The transformation runs when the engine is loaded: a model that already holds PagedAttentionExtension nodes can be
written but not read back. It matches only what is built here: past inputs that pass through a Gather by `beam_idx`, and
states with an initial value. contracts/openvino.md has the facts.
"""

import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import torch
from openvino import opset13 as ops
from openvino._offline_transformations import apply_make_stateful_transformation, paged_attention_transformation
from transformers import PreTrainedModel

from . import disk
from .errors import ConversionError
from .interrupt import held_interrupts
from .model_config import ModelConfig

NEW_TOKENS = 2  # of the traced call; both counts differ from each other and from 1, so that no size is baked in
PAST_TOKENS = 3
SLIDING_WINDOW_INPUT = 10  # of PagedAttentionExtension; 0: no window


class _ConcatCache:
    """What a decoder asks of its key-value cache: the past tensors it was given, with the new ones behind them."""

    is_compileable = False

    def __init__(self, past: Sequence[torch.Tensor]) -> None:
        """`past` holds key and value of every layer in turn, each [batch, kv_heads, past_tokens, head_size]."""
        self.tensors = list(past)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.tensors[2 * layer_idx].shape[2]

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one layer's new keys and values and return the whole. Models pass extras that no plain cache needs."""
        for index, new in ((2 * layer_idx, key), (2 * layer_idx + 1, value)):
            self.tensors[index] = torch.cat([self.tensors[index], new], dim=2)
        return self.tensors[2 * layer_idx], self.tensors[2 * layer_idx + 1]


class _Step(torch.nn.Module):
    """One forward pass with every input and output a tensor, as tracing needs it."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        # transformers has changed the keyword
        self._cache = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Logits [B, T, vocab], then the present keys and values. `attention_mask` [B, P + T] covers past and new."""
        cache = _ConcatCache(past)
        mask = _causal_mask(attention_mask, input_ids.shape[1])
        logits = self.model(
            input_ids=input_ids, attention_mask=mask, position_ids=position_ids, use_cache=True, **{self._cache: cache}
        ).logits
        return (logits, *cache.tensors)


def _causal_mask(attention_mask: torch.Tensor, new_tokens: int) -> torch.Tensor:
    """An additive mask [B, 1, T, P + T] made of traceable operators, which transformers' own mask code is not."""
    total_tokens = attention_mask.shape[1]
    key = torch.arange(total_tokens)[None, :]
    query = torch.arange(new_tokens)[:, None] + (total_tokens - new_tokens)
    visible = (key <= query)[None, None] & attention_mask[:, None, None, :].bool()
    return torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)


def export(model: PreTrainedModel, config: ModelConfig) -> ov.Model:
    """A stateful model: input_ids, attention_mask, position_ids and beam_idx in, logits out. Raises ConversionError."""
    try:
        traced = _trace(model, config)
        with held_interrupts():
            converted = ov.convert_model(traced)
        names = [f"{kind}.{layer}" for layer in range(config.num_hidden_layers) for kind in ("key", "value")]
        past, present = [f"past.{name}" for name in names], [f"present.{name}" for name in names]
        _name(converted.inputs, ["input_ids", "attention_mask", "position_ids", *past])
        _name(converted.outputs, ["logits", *present])
        _make_dynamic(converted, config)
        _gather_past(converted)
        apply_make_stateful_transformation(converted, dict(zip(past, present, strict=True)))
        _start_states_empty(converted)
        converted.validate_nodes_and_infer_types()
    except Exception as error:  # tracing runs the model's own code, which fails as it likes
        raise ConversionError(f"{config.architecture} cannot be expressed in OpenVINO: {error}") from error
    return converted


def save(model: ov.Model, path: Path) -> None:
    """Write `path` (.xml) and the weights beside it (.bin), in f32. Raises OSError."""
    try:
        ov.save_model(model, str(path), compress_to_fp16=False)
    except RuntimeError as error:  # how OpenVINO reports a full disk, without saying so
        free = disk.free_bytes(path.parent) / 1e6
        raise OSError(f"{path.name} and {path.stem}.bin: {error}; {free:.1f} MB are free") from error


def compile_paged(path: Path, kv_cache_dtype: str, sliding_windows: Sequence[int | None]) -> ov.CompiledModel:
    """The written model as an executor loads it: with paged attention, in f32, on the CPU. Raises ConversionError."""
    core = ov.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": kv_cache_dtype}
    try:
        with held_interrupts():
            model = core.read_model(str(path))
            paged_attention_transformation(model)
            _set_sliding_windows(model, sliding_windows)
            return core.compile_model(model, "CPU", options)
    except (RuntimeError, ValueError) as error:  # ValueError: some of the layers have no paged attention
        raise ConversionError(f"{path.name} does not compile with paged attention: {error}") from error


def _trace(model: PreTrainedModel, config: ModelConfig) -> torch.jit.ScriptModule:
    past = torch.zeros(1, config.num_key_value_heads, PAST_TOKENS, config.head_size)
    example = (
        torch.ones(1, NEW_TOKENS, dtype=torch.int64),
        torch.ones(1, PAST_TOKENS + NEW_TOKENS, dtype=torch.int64),
        torch.arange(PAST_TOKENS, PAST_TOKENS + NEW_TOKENS)[None],
        *[past] * (2 * config.num_hidden_layers),
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about branches that are the same for every length, and deprecations within
        traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]  # torch leaves it so
            _Step(model).eval(), example, check_trace=False, strict=False
        )
    return traced


def _set_sliding_windows(model: ov.Model, windows: Sequence[int | None]) -> None:
    """Let each layer see its window only, as the manifest says it; the transformation has dropped the exported mask."""
    layers = [node for node in model.get_ordered_ops() if node.get_type_name() == "PagedAttentionExtension"]
    for layer, window in zip(layers, windows, strict=bool(windows)):
        if window is not None:
            layer.input(SLIDING_WINDOW_INPUT).replace_source_output(ops.constant(window, ov.Type.i32).output(0))


def _name(ports: Sequence[ov.Output], names: Sequence[str]) -> None:
    """Name ports and, since the transformation looks for those, their nodes."""
    for port, name in zip(ports, names, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)


def _make_dynamic(converted: ov.Model, config: ModelConfig) -> None:
    """Free every size but the heads' number and size, which the transformation reads off the past inputs."""
    for parameter in converted.get_parameters():
        is_past = parameter.output(0).get_any_name().startswith("past.")
        sizes = [-1, config.num_key_value_heads, -1, config.head_size] if is_past else [-1, -1]
        parameter.set_partial_shape(ov.PartialShape(sizes))
        parameter.set_element_type(ov.Type.f32 if is_past else ov.Type.i64)
    converted.validate_nodes_and_infer_types()


def _gather_past(converted: ov.Model) -> None:
    """Put a Gather by the new input `beam_idx` behind every past input."""
    beam_idx = ops.parameter(ov.PartialShape([-1]), ov.Type.i32, name="beam_idx")
    _name(beam_idx.outputs(), ["beam_idx"])
    batch_axis = ops.constant(0, ov.Type.i64)
    for parameter in converted.get_parameters():
        port = parameter.output(0)
        if port.get_any_name().startswith("past."):
            consumers = port.get_target_inputs()  # before the Gather becomes one of them
            gathered = ops.gather(port, beam_idx, batch_axis)
            for consumer in consumers:
                consumer.replace_source_output(gathered.output(0))
    converted.add_parameters([beam_idx])
    converted.validate_nodes_and_infer_types()


def _start_states_empty(converted: ov.Model) -> None:
    """Give every state an initial value: no past tokens, for as many sequences as `input_ids` has rows."""
    input_shape = ops.shape_of(converted.input("input_ids"), ov.Type.i64)
    batch = ops.gather(input_shape, ops.constant([0], ov.Type.i64), ops.constant(0, ov.Type.i64))
    for node in converted.get_ops():
        if node.get_type_name() == "ReadValue":
            _, kv_heads, _, head_size = node.get_output_partial_shape(0)
            sizes = np.array([kv_heads.get_length(), 0, head_size.get_length()])
            shape = ops.concat([batch, ops.constant(sizes, ov.Type.i64)], axis=0)
            empty = ops.broadcast(ops.constant(0.0, ov.Type.f32), shape)
            node.set_arguments([empty.output(0)])
