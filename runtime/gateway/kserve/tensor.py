"""Tensors of the protocol: datatypes, and elements to bytes and back."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from jetway.runtime.errors import InvalidArgument

Value = bool | int | float | bytes  # an element; of BYTES they are bytes

NUMPY_TYPES: dict[str, Any] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"), "UINT16": np.dtype("<u2"), "UINT32": np.dtype("<u4"), "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"), "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"), "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
}  # fmt: skip
_LISTED_TYPES: dict[str, set[type]] = {
    "BOOL": {bool}, "BYTES": {bytes, str}, "INT": {int}, "UINT": {int}, "FP": {int, float},
}  # fmt: skip
_LENGTH = struct.Struct("<I")  # stands before each element of BYTES


@dataclass(frozen=True, slots=True)
class Tensor:
    """Of an answer: `values` in row-major order."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Sequence[Value]


class GivenTensor(NamedTuple):
    """Of a request, as it stands there: nothing in it is checked. `data` is raw content, or elements that were listed."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | Sequence[object]


def values_of(tensor: GivenTensor) -> list[Value]:
    """The elements. Raises InvalidArgument unless they are as many, and such, as shape and datatype say."""
    count = prod(tensor.shape)
    if not isinstance(tensor.data, bytes):
        values = _listed(tensor, tensor.data)
    elif tensor.datatype == "BYTES":
        values = _strings(tensor.name, tensor.data)
    else:
        return _numbers(tensor, tensor.data, count)
    if len(values) != count:
        raise InvalidArgument(f"expected {count} elements for inference input '{tensor.name}', got {len(values)}")
    return values


def to_bytes(tensor: Tensor) -> bytes:
    """The tensor's raw content."""
    if tensor.datatype == "BYTES":
        elements = [each for each in tensor.values if isinstance(each, bytes)]
        return b"".join(_LENGTH.pack(len(each)) + each for each in elements)
    return np.array(tensor.values, NUMPY_TYPES[tensor.datatype]).tobytes()


def _numbers(tensor: GivenTensor, raw: bytes, count: int) -> list[Value]:
    kind = NUMPY_TYPES[tensor.datatype]
    if len(raw) != count * kind.itemsize:
        raise InvalidArgument(
            f"input byte size mismatch for input '{tensor.name}'. Expected {count * kind.itemsize}, got {len(raw)}"
        )
    values: list[Value] = np.frombuffer(raw, kind).tolist()
    return values


def _strings(name: str, raw: bytes) -> list[Value]:
    values: list[Value] = []
    position = 0
    while position < len(raw):
        start = position + _LENGTH.size
        if start > len(raw):
            raise InvalidArgument(
                f"incomplete string length indicator for inference input '{name}', expecting {_LENGTH.size} bytes but "
                f"only {len(raw) - position} bytes available"
            )
        position = start + _LENGTH.unpack_from(raw, position)[0]
        if position > len(raw):
            raise InvalidArgument(
                f"incomplete string data for inference input '{name}', expecting string of length {position - start} "
                f"but only {len(raw) - start} bytes available"
            )
        values.append(raw[start:position])
    return values


def _listed(tensor: GivenTensor, elements: Sequence[Any]) -> list[Value]:
    """Elements that were listed, as their datatype has them. There may be millions: each is looked at in C only."""
    datatype = tensor.datatype
    types = set(map(type, elements))  # compared as types, since to Python true is 1
    if types <= _LISTED_TYPES[_family(datatype)]:
        if datatype == "BYTES":
            return [each if isinstance(each, bytes) else each.encode(errors="surrogatepass") for each in elements]
        if datatype.startswith("FP"):
            with suppress(OverflowError):
                return list(map(float, elements))
        elif datatype == "BOOL" or _are_within(elements, np.iinfo(NUMPY_TYPES[datatype])):
            return list(elements)
    raise InvalidArgument(f"an element of inference input '{tensor.name}' is no {datatype}")


def _family(datatype: str) -> str:
    """The datatype without its size."""
    return datatype.rstrip("0123456789")


def _are_within(elements: Sequence[int], limits: "np.iinfo[Any]") -> bool:
    return not elements or (limits.min <= min(elements) and max(elements) <= limits.max)
