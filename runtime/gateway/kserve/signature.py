"""What tensors a model takes, and a request's tensors checked against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.words import MAX_SHOWN_CHARS, cut, quoted

from .tensor import GivenTensor, Value, values_of


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """`dims` without the batch dimension; -1 is any number."""

    name: str
    datatype: str
    dims: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class InputSpec(TensorSpec):
    """With `neutral`, elements other than these ask for what is not there, and are refused."""

    required: bool = False
    neutral: tuple[Value, ...] | None = None


class Inputs:
    """A request's tensors, by name: every element is of the datatype that the model's signature says."""

    def __init__(self, values: Mapping[str, Sequence[Value]]) -> None:
        self._values = values

    def all(self, name: str) -> Sequence[Value]:
        """Empty where the tensor is absent."""
        return self._values.get(name, ())

    def first(self, name: str) -> Value | None:
        return next(iter(self.all(name)), None)

    def integer(self, name: str) -> int | None:
        value = self.first(name)
        return value if isinstance(value, int) else None

    def integers(self, name: str) -> list[int]:
        return [value for value in self.all(name) if isinstance(value, int)]

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.first(name)
        return value if isinstance(value, bool) else default

    def texts(self, name: str) -> list[str]:
        """Raises InvalidArgument for what is not UTF-8."""
        return [_text(name, value) for value in self.all(name) if isinstance(value, bytes)]


def check(model: str, specs: Sequence[InputSpec], given: Sequence[GivenTensor]) -> Inputs:
    """Raises InvalidArgument in Triton's words for tensors that are not the model's."""
    by_name = {spec.name: spec for spec in specs}
    values: dict[str, Sequence[Value]] = {}
    for tensor in given:
        spec = by_name.get(tensor.name)
        if spec is None:
            raise InvalidArgument(f"unexpected inference input {quoted(tensor.name)} for model '{model}'")
        if tensor.name in values:
            raise InvalidArgument(f"input '{tensor.name}' already exists in request")
        _check_type(model, spec, tensor)
        values[tensor.name] = values_of(tensor)
        _check_neutral(model, spec, values[tensor.name])
        _check_finite(spec, values[tensor.name])
    _check_complete(model, specs, values)
    return Inputs(values)


def _check_type(model: str, spec: InputSpec, tensor: GivenTensor) -> None:
    """A batch dimension of 1 may stand before the shape, whether the model has one or not."""
    if tensor.datatype != spec.datatype:
        raise InvalidArgument(
            f"inference input '{spec.name}' data-type is {quoted(tensor.datatype)}, but model '{model}' expects '{spec.datatype}'"
        )
    shape = tensor.shape
    if any(dim < 0 for dim in shape):
        raise InvalidArgument(
            f"All input dimensions should be specified for input '{spec.name}' for model '{model}', got {_shown(shape)}"
        )
    if len(shape) == len(spec.dims) + 1:
        if shape[0] > 1:
            raise InvalidArgument(f"inference request batch-size must be <= 1 for '{model}'")
        if shape[0] == 0:
            raise InvalidArgument(
                f"inference input '{spec.name}' of '{model}' has an empty batch: {_shown(tensor.shape)}"
            )
        shape = shape[1:]
    if len(shape) != len(spec.dims) or any(want not in (-1, dim) for want, dim in zip(spec.dims, shape)):
        raise InvalidArgument(
            f"unexpected shape for input '{spec.name}' for model '{model}'. "
            f"Expected {_shown((-1, *spec.dims))}, got {_shown(tensor.shape)}"
        )


def _check_neutral(model: str, spec: InputSpec, values: Sequence[Value]) -> None:
    if spec.neutral is not None and any(value not in spec.neutral for value in values):
        raise InvalidArgument(f"input '{spec.name}' of model '{model}' is not supported here; leave it out")


def _check_finite(spec: InputSpec, values: Sequence[Value]) -> None:
    """Also of tensors that change nothing."""
    for value in values:
        if isinstance(value, float) and not isfinite(value):
            raise InvalidArgument(f"input '{spec.name}' must be finite, not {value}", param=spec.name)


def _check_complete(model: str, specs: Sequence[InputSpec], values: Mapping[str, object]) -> None:
    required = [spec.name for spec in specs if spec.required]
    missing = [name for name in required if name not in values]
    if missing:
        raise InvalidArgument(
            f"expected number of inputs between {len(required)} and {len(specs)} but got {len(values)} inputs for model "
            f"'{model}'. Got input(s) {_names(values)}, but missing required input(s) {_names(missing)}. Please provide "
            "all required input(s)."
        )


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"inference input '{name}' is not UTF-8: {error.reason} at byte {error.start}") from error


def _shown(shape: Sequence[int]) -> str:
    return cut("[" + ",".join(map(str, shape[:MAX_SHOWN_CHARS])) + "]")


def _names(names: Mapping[str, object] | Sequence[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"
