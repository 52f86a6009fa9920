"""A paged model cut into pipeline stages, by the shape of its graph and not by what its nodes are called.

Two stages meet in a tensor that everything passes on its way from `input_ids` to the logits. Between two layers' paged
attentions there is the residual stream, and nothing else, as soon as no later layer asks an earlier one for its shape.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import openvino as ov
from openvino import opset13 as ops

from jetway.builder.manifest import stage_layers
from jetway.runtime.errors import ConfigError

from .openvino_graph import PAGED_ATTENTION, named_parameter

HIDDEN_STATES = "hidden_states"  # the input of a stage that the stage before it computes


@dataclass(frozen=True, slots=True)
class Stage:
    """One of `num_stages` consecutive parts of a model. The first has the embeddings, the last the head."""

    index: int
    num_stages: int

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index == self.num_stages - 1

    def layers(self, num_layers: int) -> range:
        """Spread as TensorRT-LLM spreads them."""
        return stage_layers(num_layers, self.num_stages)[self.index]


WHOLE = Stage(0, 1)


def stage_model(model: ov.Model, stage: Stage) -> ov.Model:
    """The stage's part of a paged model, whose other parts go with `model`, which is modified and of no more use.

    Its inputs are `hidden_states`, unless it is the first, and those of the model that it needs; its output is the next
    stage's `hidden_states`, or logits. Raises ConfigError for a model that does not come apart into so many stages.
    """
    num_layers = sum(node.get_type_name() == PAGED_ATTENTION for node in model.get_ordered_ops())
    if stage.num_stages > num_layers:
        raise ConfigError(f"a model of {num_layers} layers does not make {stage.num_stages} pipeline stages")
    layers = stage.layers(num_layers)
    _make_shapes_of_step_inputs(model)
    cuts = _cuts(model)
    result, parameters = model.get_results()[0], model.get_parameters()
    if not stage.is_last:
        result = ops.result(_cut_before(layers.stop, cuts))
    if not stage.is_first:
        received = _cut_before(layers.start, cuts)
        hidden = named_parameter(HIDDEN_STATES, received.get_partial_shape(), received.get_element_type())
        for target in received.get_target_inputs():
            target.replace_source_output(hidden.output(0))
        parameters.append(hidden)
    return ov.Model([result], _used(parameters, result), f"stage {stage.index} of {stage.num_stages}")


def _make_shapes_of_step_inputs(model: ov.Model) -> None:
    """Where a shape is asked for that has one row a token, make it of the number of tokens, which all stages know."""
    symbol = ov.Symbol()
    num_tokens = ov.Dimension(-1)
    num_tokens.set_symbol(symbol)
    for name in ("input_ids", "position_ids"):
        model.input(name).get_node().set_partial_shape(ov.PartialShape([num_tokens]))
    model.validate_nodes_and_infer_types()  # finds every other dimension that is the number of tokens
    position_ids = model.input("position_ids")
    for node in model.get_ordered_ops():
        if node.get_type_name() != "ShapeOf":
            continue
        lengths, kind = node.input_value(0).get_partial_shape(), node.get_output_element_type(0)
        if all(length.is_static or length.get_symbol() == symbol for length in lengths):
            parts = [
                ops.constant([length.get_length()], kind) if length.is_static else ops.shape_of(position_ids, kind)
                for length in lengths
            ]
            node.output(0).replace(ops.concat(parts, 0).output(0))


def _cuts(model: ov.Model) -> dict[int, ov.Output]:
    """By the number of layers before it: the last tensor through which all that comes of `input_ids` passes.

    In any order in which nodes may be computed, that is a tensor which is alone in having uses to come.
    """
    order = model.get_ordered_ops()
    uses = Counter(value for node in order for value in node.input_values())
    source = model.input("input_ids")
    reached, to_come, cuts, num_layers = {source}, Counter({source: uses[source]}), dict[int, ov.Output](), 0
    for node in order:
        if not (taken := [value for value in node.input_values() if value in reached]):
            continue
        to_come.subtract(taken)
        to_come += Counter({output: uses[output] for output in node.outputs()})  # and drops what has none left
        reached.update(node.outputs())
        num_layers += node.get_type_name() == PAGED_ATTENTION
        if len(to_come) == 1:
            cuts[num_layers] = next(iter(to_come))
    return cuts


def _cut_before(layer: int, cuts: dict[int, ov.Output]) -> ov.Output:
    if layer not in cuts:
        raise ConfigError(
            f"the model cannot be cut into pipeline stages: more than one tensor goes from layer {layer - 1} to {layer}"
        )
    return cuts[layer]


def _used(parameters: Sequence[ov.op.Parameter], result: ov.op.Result) -> list[ov.op.Parameter]:
    """Those that `result` is computed from."""
    used, nodes = set[ov.Output](), [result]
    while nodes:
        new = set(nodes.pop().input_values()) - used
        used |= new
        nodes += [value.get_node() for value in new]
    return [parameter for parameter in parameters if parameter.output(0) in used]
