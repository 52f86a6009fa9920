"""The model of an engine directory, with paged attention in place of its states (contracts/openvino.md)."""

from collections.abc import Sequence
from pathlib import Path

import openvino as ov
from openvino import opset13 as ops
from openvino._offline_transformations import paged_attention_transformation

PAGED_ATTENTION = "PagedAttentionExtension"
SLIDING_WINDOW_INPUT = 10  # of PagedAttentionExtension


def paged_model(path: Path, sliding_windows: Sequence[int | None]) -> ov.Model:
    """The stateful model in `path`, with paged attention and logits for the rows of `sample_tokens`."""
    model = ov.Core().read_model(path)
    paged_attention_transformation(model)
    layers = [node for node in model.get_ordered_ops() if node.get_type_name() == PAGED_ATTENTION]
    for layer, window in zip(layers, sliding_windows, strict=bool(sliding_windows)):
        if window is not None:
            layer.input(SLIDING_WINDOW_INPUT).replace_source_output(ops.constant(window, ov.Type.i32).output(0))
    head = model.get_results()[0]
    while head.get_type_name() != "MatMul":
        head = head.input_value(0).get_node()
    rows = named_parameter("sample_tokens", ov.PartialShape([-1]), ov.Type.i64)
    hidden = ops.gather(head.input_value(0), rows, ops.constant(0, ov.Type.i64))
    head.input(0).replace_source_output(hidden.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    return model


def named_parameter(name: str, shape: ov.PartialShape, element_type: ov.Type) -> ov.op.Parameter:
    """An input that a request can set by `name`."""
    parameter = ops.parameter(shape, element_type, name=name)
    parameter.output(0).get_tensor().set_names({name})
    return parameter
