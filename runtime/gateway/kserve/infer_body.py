"""Bodies of /infer: JSON, and raw tensors after it (the binary tensor extension)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from jetway.runtime.errors import Internal, InvalidArgument
from jetway.runtime.gateway.openai.read import read_object
from jetway.runtime.gateway.words import quoted

from . import parameters
from .catalog import VERSION, Model
from .inference import InferRequest
from .parameters import Parameter
from .replies import Reply
from .tensor import GivenTensor, Tensor, to_bytes

_TWO_TO_63 = 1 << 63
BINARY_OUTPUT = "binary_data_output"
SEVERAL = "HTTP end point doesn't support models with decoupled transaction policy"
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class InferBody:
    """`binary` names the outputs that are to be raw; None: all are."""

    request: InferRequest
    binary: frozenset[str] | None


def parse(model: Model, body: bytes, json_size: int | None) -> InferBody:
    """`json_size`: bytes of JSON, where raw tensors follow. Raises InvalidArgument."""
    if json_size is not None and not 0 <= json_size <= len(body):
        raise InvalidArgument(f"inference header size should be in range (0, {len(body)}), got: {json_size}")
    head = read_object(body[:json_size])
    given = parameters_of(head)
    binary = given.pop(BINARY_OUTPUT, False) is True
    outputs = {each["name"]: each for each in _objects(head, "outputs")}
    request = InferRequest(
        model=model,
        id=id_of(head),
        inputs=_inputs(head, b"" if json_size is None else body[json_size:]),
        parameters=parameters.parse(given),
        outputs=frozenset(outputs),
        several=SEVERAL,
    )
    if not outputs:
        return InferBody(request, None if binary else frozenset())
    return InferBody(request, frozenset(name for name, each in outputs.items() if _is_binary(each, default=binary)))


def id_of(body: Mapping[str, Any]) -> str:
    """Another type is a fault in Triton, and is told as one. Raises Internal."""
    given = body.get("id", "")
    if not isinstance(given, str):
        raise Internal("Unable to parse 'id': attempt to access JSON non-string as string")
    return given


def parameters_of(body: Mapping[str, Any]) -> dict[str, Parameter]:
    """Raises InvalidArgument for what is no parameter."""
    given = body.get("parameters", {})
    if not isinstance(given, dict):
        raise InvalidArgument("Expected JSON object for keyword: 'parameters'", param="parameters")
    return {name: parameter(name, value) for name, value in given.items()}


def parameter(name: str, value: object) -> Parameter:
    """Raises InvalidArgument, in Triton's words. Whole numbers have 64 bits, as in gRPC."""
    if isinstance(value, bool | float | str) or (isinstance(value, int) and -_TWO_TO_63 <= value < 2 * _TWO_TO_63):
        return value
    raise InvalidArgument(
        f"parameter {quoted(name)} has invalid type. It should be either 'int', 'bool', or 'string'.", param=name
    )


def format(request: InferRequest, reply: Reply, binary: frozenset[str] | None) -> tuple[bytes, int | None]:
    """The body, and how much of it is JSON where raw tensors follow."""
    raw = {each.name: to_bytes(each) for each in reply.outputs if binary is None or each.name in binary}
    head = answer_head(request) | {"outputs": [_output(each, raw.get(each.name)) for each in reply.outputs]}
    encoded = _encode(head).encode()
    return encoded + b"".join(raw.values()), len(encoded) if raw else None


def answer_head(request: InferRequest) -> dict[str, Any]:
    """What every answer in JSON begins with."""
    named = {"id": request.id} if request.id else {}
    return named | {"model_name": request.model.name, "model_version": VERSION}


def json_values(tensor: Tensor) -> list[Any]:
    return [each.decode() if isinstance(each, bytes) else each for each in tensor.values]


def flattened(data: object) -> list[object]:
    """The elements of nested lists, in order. A list of nothing but elements is taken as it is, millions at once."""
    elements: list[object] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        if not isinstance(item, list):
            elements.append(item)
        elif list in set(map(type, item)):
            waiting.extend(reversed(item))
        else:
            elements.extend(item)
    return elements


def _inputs(head: Mapping[str, Any], raw: bytes) -> list[GivenTensor]:
    if "inputs" not in head:
        raise InvalidArgument("Unable to parse 'inputs': attempt to access non-existing object member 'inputs'")
    tensors = []
    for each in _objects(head, "inputs"):
        shape, datatype = each.get("shape"), each.get("datatype")
        if not _is_shape(shape) or not isinstance(datatype, str):
            raise InvalidArgument(f"input {quoted(each['name'])} needs a shape and a datatype", param="inputs")
        data, raw = _data(each, raw)
        tensors.append(GivenTensor(each["name"], datatype, tuple(shape), data))
    if raw:
        raise InvalidArgument(f"{len(raw)} bytes follow the last input's", param="inputs")
    return tensors


def _is_shape(given: object) -> TypeGuard[list[int]]:
    return isinstance(given, list) and all(type(dim) is int and -_TWO_TO_63 <= dim < _TWO_TO_63 for dim in given)


def _data(tensor: Mapping[str, Any], raw: bytes) -> tuple[bytes | Sequence[object], bytes]:
    """The tensor's content, and what of `raw` is left for the next."""
    given = parameters_of(tensor)
    if "shared_memory_region" in given:
        raise InvalidArgument(
            f"input {quoted(tensor['name'])} is in shared memory, which is not served", param="inputs"
        )
    size = given.get("binary_data_size")
    if (size is None) == ("data" not in tensor):
        raise InvalidArgument(
            f"input {quoted(tensor['name'])} must have either 'data' or 'binary_data_size' in 'parameters'",
            param="inputs",
        )
    if size is None:
        return flattened(tensor["data"]), raw
    if type(size) is not int or not 0 <= size <= len(raw):
        raise InvalidArgument(
            f"binary_data_size of input {quoted(tensor['name'])} must be in [0, {len(raw)}]", param="inputs"
        )
    return raw[:size], raw[size:]


def _objects(head: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects with names. Raises InvalidArgument."""
    given = head.get(name, [])
    if not isinstance(given, list) or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in given
    ):
        raise InvalidArgument(f"{name} must be a list of objects that have a name", param=name)
    return given


def _is_binary(output: Mapping[str, Any], *, default: bool) -> bool:
    given = parameters_of(output)
    for name in ("classification", "shared_memory_region"):
        if name in given:
            raise InvalidArgument(
                f"output {quoted(output['name'])} asks for {name}, which is not served", param="outputs"
            )
    return given.get("binary_data", default) is True


def _output(tensor: Tensor, raw: bytes | None) -> dict[str, Any]:
    content = {"data": json_values(tensor)} if raw is None else {"parameters": {"binary_data_size": len(raw)}}
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)} | content
