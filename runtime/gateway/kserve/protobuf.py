"""Triton's messages to requests, and replies to messages."""

from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import service_pb2

from jetway.runtime.errors import InvalidArgument, JetwayError
from jetway.runtime.gateway.words import quoted

from . import parameters
from .catalog import VERSION, Catalog
from .errors import message_of
from .inference import InferRequest
from .replies import Reply
from .tensor import GivenTensor, to_bytes

Message = Any  # tritonclient's types are not known to type checkers

FINAL = "triton_final_response"
MAX_PARTS = 1024  # of one kind in a request: no model takes as many, and they are looked at on the event loop
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def request_from(message: Message, catalog: Catalog, *, several: str | None) -> InferRequest:
    """Raises InvalidArgument and ModelNotFound. `several` as in InferRequest."""
    for kind in ("inputs", "outputs", "parameters"):
        if (num_parts := len(getattr(message, kind))) > MAX_PARTS:
            raise InvalidArgument(f"a request may have at most {MAX_PARTS} {kind}, not {num_parts}", param=kind)
    given = {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in message.parameters.items()
             if value.WhichOneof("parameter_choice")}  # fmt: skip
    return InferRequest(
        model=catalog.find(message.model_name, message.model_version),
        id=message.id,
        inputs=_inputs(message),
        parameters=parameters.parse(given),
        outputs=frozenset(_output(each) for each in message.outputs),
        several=several,
    )


def response_to(request: Message, reply: Reply) -> Message:
    response = service_pb2.ModelInferResponse(model_name=request.model_name, model_version=VERSION, id=request.id)
    for tensor in reply.outputs:
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.append(to_bytes(tensor))
    return response


def stream_response_to(request: Message, reply: Reply) -> Message:
    response = response_to(request, reply)
    response.parameters[FINAL].bool_param = reply.final
    return service_pb2.ModelStreamInferResponse(infer_response=response)


def stream_error_to(request: Message, error: JetwayError) -> Message:
    """The frame that ends one request of a stream; the others go on."""
    response = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
    response.parameters[FINAL].bool_param = True
    return service_pb2.ModelStreamInferResponse(error_message=message_of(error, request.id), infer_response=response)


def _inputs(message: Message) -> list[GivenTensor]:
    raw: Sequence[bytes] = message.raw_input_contents
    if not raw:
        return [_tensor(each, list(_listed(each))) for each in message.inputs]
    if len(raw) > len(message.inputs):
        raise InvalidArgument(f"there are {len(raw)} raw contents for {len(message.inputs)} inputs", param="inputs")
    for position, each in enumerate(message.inputs):
        where = f"{quoted(each.name)} for model '{message.model_name}'"
        if position >= len(raw):
            raise InvalidArgument(f"unable to find data for input tensor {where} in request.", param="inputs")
        if each.HasField("contents"):
            raise InvalidArgument(
                f"contents field must not be specified when using raw_input_contents for {where}", param="inputs"
            )
    return [_tensor(each, content) for each, content in zip(message.inputs, raw)]


def _tensor(message: Message, data: bytes | Sequence[object]) -> GivenTensor:
    if "shared_memory_region" in message.parameters:
        raise InvalidArgument(f"input {quoted(message.name)} is in shared memory, which is not served", param="inputs")
    return GivenTensor(message.name, message.datatype, tuple(message.shape), data)


def _listed(message: Message) -> Sequence[object]:
    """Elements that are fields of the message."""
    field = _CONTENTS.get(message.datatype)
    listed: Sequence[object] = () if field is None else getattr(message.contents, field)
    return listed


def _output(message: Message) -> str:
    """Raises InvalidArgument for what can be done to an output and is not done here."""
    for name in ("classification", "shared_memory_region"):
        if name in message.parameters:
            raise InvalidArgument(
                f"output {quoted(message.name)} asks for {name}, which is not served", param="outputs"
            )
    return str(message.name)
