"""Strict reading of JSON objects: a value is what it should be, or an InvalidArgument that names its field."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from jetway.runtime.errors import InvalidArgument

_MAX_INT = 2**31 - 1
_NAMES = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list", dict: "an object"}


class Fields:
    """One JSON object. Readers return None for a field that is absent or null; `path` names the object in errors."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    @classmethod
    def read(cls, body: bytes) -> "Fields":
        """A request body. Raises InvalidArgument for bad JSON, NaN and Infinity included."""
        try:
            value = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"the body is not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise InvalidArgument(f"the body must be a JSON object, not {_name(value)}")
        return cls(value)

    def param(self, name: str) -> str:
        """The field's name from the top of the body."""
        return f"{self._path}.{name}" if self._path else name

    def names(self) -> list[str]:
        return list(self._values)

    def raw(self, name: str) -> Any:
        return self._values.get(name)

    def error(self, name: str, expected: str) -> InvalidArgument:
        return InvalidArgument(
            f"{self.param(name)} must be {expected}, not {shown(self.raw(name))}", param=self.param(name)
        )

    def boolean(self, name: str) -> bool | None:
        value: bool | None = self._of(name, bool)
        return value

    def string(self, name: str) -> str | None:
        value: str | None = self._of(name, str)
        return value

    def required_string(self, name: str) -> str:
        value = self.string(name)
        if value is None:
            raise InvalidArgument(f"{self.param(name)} is missing; it must be a string", param=self.param(name))
        return value

    def items(self, name: str) -> list[Any] | None:
        value: list[Any] | None = self._of(name, list)
        return value

    def integer(self, name: str) -> int | None:
        value: int | None = self._of(name, int)
        if value is not None and not -(2**63) <= value < 2**64:
            raise self.error(name, "an integer of at most 64 bits")
        return value

    def count(self, name: str) -> int | None:
        """An integer of at least 1."""
        value = self.integer(name)
        if value is not None and not 1 <= value <= _MAX_INT:
            raise self.error(name, f"in [1, {_MAX_INT}]")
        return value

    def number(self, name: str) -> float | None:
        value = self.raw(name)
        if value is None:
            return None
        if type(value) not in (int, float):
            raise self.error(name, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self.error(name, "a number that a double can hold") from None

    def object(self, name: str) -> "Fields | None":
        value: dict[str, Any] | None = self._of(name, dict)
        return None if value is None else Fields(value, self.param(name))

    def token_ids(self, name: str) -> tuple[int, ...] | None:
        value = self.items(name)
        return None if value is None else self.check_token_ids(name, value)

    def check_token_ids(self, name: str, ids: list[Any]) -> tuple[int, ...]:
        for token in ids:
            if type(token) is not int or not 0 <= token <= _MAX_INT:
                raise InvalidArgument(
                    f"{self.param(name)} must hold token ids, not {shown(token)}", param=self.param(name)
                )
        return tuple(ids)

    def _of(self, name: str, kind: type) -> Any:
        value = self.raw(name)
        if value is not None and type(value) is not kind:  # not isinstance: a bool is no integer here
            raise self.error(name, _NAMES[kind])
        return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _name(value: object) -> str:
    return _NAMES.get(type(value), "null")


def shown(value: object) -> str:
    """The value as JSON, cut to a length that fits a message."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
