"""Elements to bytes and back; the bytes are numpy's and tritonclient's."""

from typing import Any

import numpy as np
import pytest
from tritonclient.utils import deserialize_bytes_tensor, np_to_triton_dtype, serialize_byte_tensor

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.kserve.tensor import NUMPY_TYPES, GivenTensor, Tensor, to_bytes, values_of


@pytest.mark.parametrize("datatype", NUMPY_TYPES)
def test_numbers_are_numpys(datatype: str) -> None:
    array = np.array([0, 1, 1], NUMPY_TYPES[datatype])
    assert np_to_triton_dtype(array.dtype) == datatype
    assert values_of(GivenTensor("x", datatype, (1, 3), array.tobytes())) == array.tolist()
    assert to_bytes(Tensor("x", datatype, (1, 3), array.tolist())) == array.tobytes()


def test_strings_are_tritonclients() -> None:
    strings = ["", "é", "long" * 100]
    raw = serialize_byte_tensor(np.array(strings, dtype=object)).item()
    values = [each.encode() for each in strings]
    assert values_of(GivenTensor("x", "BYTES", (3,), raw)) == values
    assert deserialize_bytes_tensor(to_bytes(Tensor("x", "BYTES", (3,), values))).tolist() == values


@pytest.mark.parametrize(
    ("datatype", "element", "value"),
    [
        ("BOOL", True, True), ("BYTES", "é", "é".encode()), ("BYTES", b"x", b"x"), ("INT32", -(2**31), -(2**31)),
        ("UINT64", 2**64 - 1, 2**64 - 1), ("FP32", 1, 1.0), ("FP64", 0.5, 0.5),
    ],
)  # fmt: skip
def test_elements_that_are_listed(datatype: str, element: object, value: object) -> None:
    assert values_of(GivenTensor("x", datatype, (1,), [element])) == [value]


@pytest.mark.parametrize(
    ("datatype", "element"),
    [
        ("BOOL", 1), ("INT32", True), ("INT32", 2**31), ("UINT8", -1), ("INT32", 1.0), ("INT32", "1"), ("FP32", True),
        ("BYTES", 1), ("FP32", None), ("INT64", [1]), ("FP32", 10**400), ("UINT64", 2**64),
    ],
)  # fmt: skip
def test_elements_of_another_type_or_range(datatype: str, element: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"an element of inference input 'x' is no {datatype}"):
        values_of(GivenTensor("x", datatype, (1,), [element]))


def test_one_element_of_another_type_among_many() -> None:
    for elements in ([1] * 1000 + [True], [1] * 1000 + [2**31], ["a"] * 1000 + [1], [0.5] * 1000 + ["x"]):
        datatype = {int: "INT32", str: "BYTES", float: "FP32"}[type(elements[0])]
        with pytest.raises(InvalidArgument, match=f"an element of inference input 'x' is no {datatype}"):
            values_of(GivenTensor("x", datatype, (1001,), elements))
    assert values_of(GivenTensor("x", "FP32", (3,), [1, 0.5, 2])) == [1.0, 0.5, 2.0]
    assert values_of(GivenTensor("x", "INT32", (0,), [])) == []


def test_a_shape_that_says_more_than_there_is() -> None:
    with pytest.raises(InvalidArgument, match="Expected 4000000000000, got 4"):
        values_of(GivenTensor("x", "INT32", (10**6, 10**6), b"1234"))
    with pytest.raises(InvalidArgument, match="expected 3 elements for inference input 'x', got 1"):
        values_of(GivenTensor("x", "BYTES", (3,), b"\x01\x00\x00\x00a"))
