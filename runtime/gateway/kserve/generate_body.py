"""Bodies of /generate and /generate_stream: a JSON key for each tensor, a number or a string for one element."""

import json
from math import prod
from typing import Any

from jetway.runtime.errors import InvalidArgument, JetwayError, edge_of
from jetway.runtime.gateway.openai.read import read_object

from .catalog import Model
from .errors import message_of
from .infer_body import answer_head, flattened, id_of, json_values, parameter, parameters_of
from .inference import InferRequest
from .parameters import ERROR_CODE, FINAL_RESPONSE, parse_own
from .replies import Reply
from .signature import InputSpec
from .tensor import GivenTensor, Tensor

SEVERAL = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of "
    "responses"
)
_encode = json.JSONEncoder(separators=(",", ":")).encode


def parse(model: Model, body: bytes, *, several: str | None) -> InferRequest:
    """Keys that are no tensors are parameters of a model's own: none is reserved, and only Jetway's have a meaning.
    `several` as in InferRequest. Raises InvalidArgument and Internal.
    """
    values = read_object(body)
    specs = {spec.name: spec for spec in model.dialect.inputs}
    own = {name: value for name, value in values.items() if name not in specs and name not in ("id", "parameters")}
    given = parameters_of(values) | {name: parameter(name, value) for name, value in own.items()}
    inputs = [_tensor(spec, values[name]) for name, spec in specs.items() if name in values]
    return InferRequest(model=model, id=id_of(values), inputs=inputs, parameters=parse_own(given), several=several)


def format(request: InferRequest, reply: Reply) -> str:
    end = {FINAL_RESPONSE: reply.final} if request.parameters.says_final else {}
    return _encode(answer_head(request) | {each.name: _value(each) for each in reply.outputs} | end)


def format_error(request: InferRequest, error: JetwayError) -> str:
    """Of a stream. Its status may have been sent before, so a client that follows the stream to its end reads the code."""
    code = {ERROR_CODE: edge_of(error).kserve_grpc} if request.parameters.says_final else {}
    return _encode({"error": message_of(error, request.id)} | code)


def event(data: str) -> str:
    return f"data: {data}\n\n"


def error(message: str) -> str:
    return _encode({"error": message})


def _tensor(spec: InputSpec, value: object) -> GivenTensor:
    elements = flattened(value)
    if None in elements:
        raise InvalidArgument(f"input '{spec.name}' is null; leave it out", param=spec.name)
    return GivenTensor(spec.name, spec.datatype, _shape(spec, len(elements)), elements)


def _shape(spec: InputSpec, count: int) -> tuple[int, ...]:
    """The dims, where one that is open takes what the others leave."""
    others = prod(dim for dim in spec.dims if dim >= 0)
    return tuple(dim if dim >= 0 else count // others for dim in spec.dims)


def _value(tensor: Tensor) -> Any:
    """A tensor of one element is written as that element."""
    values = json_values(tensor)
    return values[0] if len(values) == 1 else values
