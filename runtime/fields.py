"""What a field of `config.py` is: its default, its help text and its range, and whether a value is in it."""

from dataclasses import Field, field, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import ConfigError

if TYPE_CHECKING:
    from .config import ConfigSection

_T = TypeVar("_T")


class Contradiction(ConfigError):
    """Settings that are each right and do not go together; `keys` name them."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys


def setting(
    default: _T, help: str, *, low: float | None = None, high: float | None = None, unit: str | None = None
) -> _T:
    """A dataclass field with its help text and its range, ends included; with unit "bytes" it reads 512MiB too."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "unit": unit})


def check_values(section: "ConfigSection") -> None:
    """Raise ConfigError for a value outside its range or its choices."""
    hints = get_type_hints(type(section))
    for key in fields(section):
        value = getattr(section, key.name)
        if value is not None:
            check_value(key, without_none(hints[key.name]), value)


def without_none(hint: Any) -> object:
    """The type of an optional key's values; another key's type as it is."""
    options = [option for option in get_args(hint) if option is not NoneType]
    return options[0] if NoneType in get_args(hint) else hint


def check_value(key: Field[Any], kind: object, value: object) -> None:
    """Raise ConfigError unless `value`, which is of this kind, is in the field's range or choices."""
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ConfigError(f"{key.name} must be one of {', '.join(get_args(kind))}, not {value!r}")
    if isinstance(value, int | float):
        low, high = key.metadata["low"], key.metadata["high"]
        if low is not None and not value >= low:  # NaN fits no range
            raise ConfigError(f"{key.name} must be at least {low}, not {value}")
        if high is not None and not value <= high:
            raise ConfigError(f"{key.name} must be at most {high}, not {value}")
