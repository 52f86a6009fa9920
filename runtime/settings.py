"""Every key of `config.py` as a setting: its section, flag and environment variable, and text to value.

All sources give text (a flag, the environment, a YAML scalar), so there is one parser, and none of YAML 1.1's surprises:
`off` is a word and `010` is ten.
"""

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from .config import (
    ConfigSection,
    ExecutorConfig,
    GatewayConfig,
    SchedulerConfig,
    ServeConfig,
)
from .errors import ConfigError
from .fields import check_value, without_none
from .named_config import ClassConfig, KeyConfig, TenantConfig
from .spellings import ALIASES, said_as

_UNIT_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNIT_BYTES |= {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(text: str) -> int:
    """Bytes of "1GiB", "1.5 MiB" or "4096". Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z]*)", text)
    if match is None or match[2] not in _UNIT_BYTES:
        raise ValueError(text)
    size = float(match[1]) * _UNIT_BYTES[match[2]] if "." in match[1] else int(match[1]) * _UNIT_BYTES[match[2]]
    if size != int(size):
        raise ValueError(text)
    return int(size)


def format_bytes(size: int) -> str:
    """The shortest text that `parse_bytes` reads back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNIT_BYTES[unit] == 0:
            return f"{size // _UNIT_BYTES[unit]}{unit}"
    return str(size)


def parse_bool(text: str) -> bool:
    """Raises ValueError for other words than true and false."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def parse_names(text: str) -> tuple[str, ...]:
    """Of "a, b"; in a file a list is read as such a text."""
    return tuple(name.strip() for name in text.split(","))


class Kind(NamedTuple):
    """How text becomes a value: `parse` raises ValueError, `words` say what it wants."""

    parse: Callable[[str], object]
    words: str


_KINDS: dict[object, Kind] = {
    bool: Kind(parse_bool, "true or false"),
    int: Kind(int, "a whole number"),
    float: Kind(float, "a number"),
    str: Kind(str, "text"),
    Path: Kind(Path, "a path"),
    tuple[str, ...]: Kind(parse_names, "names"),
    "bytes": Kind(parse_bytes, "a size such as 4096, 512MiB or 1GiB"),
}


class Given(NamedTuple):
    """A value as it was written, and where."""

    text: str
    origin: str


Layer = dict[str, Given]  # by setting name
NOTHING = ("", "null", "~")  # texts that leave an optional setting unset


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. `section` is None at the top level; `type` is the annotation without its None."""

    section: str | None
    field: Field[Any]
    type: object
    optional: bool

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def flags(self) -> list[str]:
        """Its own and its aliases'; a bool's are switches, each with its opposite."""
        words = [self.name, *(alias for alias, name in ALIASES.items() if name == self.name)]
        if self.type is bool:
            words = [f"{prefix}{word}" for word in words for prefix in ("", "no_")]
        return ["--" + word.replace("_", "-") for word in words]

    @property
    def many(self) -> bool:
        """It holds several values, as a list of a file does."""
        return get_origin(self.type) is tuple

    @property
    def required(self) -> bool:
        return self.field.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be; empty where it is no choice."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def takes(self) -> str:
        """What may be written, in words: choices, or a kind and the range."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        words = _KINDS[self._kind].words
        low, high = self.field.metadata.get("low"), self.field.metadata.get("high")
        if high is not None:
            return f"{words}, {self.format(low)} to {self.format(high)}"
        return words if low is None else f"{words}, at least {self.format(low)}"

    @property
    def help(self) -> str:
        return str(self.field.metadata["help"])

    @property
    def _kind(self) -> object:
        return self.field.metadata["unit"] or (str if self.choices else self.type)

    def parse(self, given: Given) -> object:
        """The value that the text means. Raises ConfigError that names key, text and origin."""
        text, origin = given
        if self.optional and text in NOTHING:
            return None
        kind = _KINDS[self._kind]
        try:
            value = kind.parse(text)
        except ValueError:
            raise ConfigError(f"{self.name} must be {kind.words}, not {text!r} ({origin})") from None
        try:
            check_value(self.field, self.type, value)
        except ConfigError as error:
            raise ConfigError(f"{error.message} ({origin})") from None
        return value

    def format(self, value: object) -> str:
        """Text that `parse` reads back."""
        if value is None:
            return "null"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            return ", ".join(value)
        return format_bytes(value) if self._kind == "bytes" and isinstance(value, int) else str(value)


SECTIONS: dict[str, type[ConfigSection]] = {
    "executor": ExecutorConfig,
    "scheduler": SchedulerConfig,
    "gateway": GatewayConfig,
}
MAPS: dict[str, type[ConfigSection]] = {
    "classes": ClassConfig,
    "tenants": TenantConfig,
    "keys": KeyConfig,
}  # name to fields, in a file


def _settings_of(section: type[ConfigSection], name: str | None) -> dict[str, Setting]:
    hints = get_type_hints(section)
    return {
        field.name: Setting(name, field, without_none(hints[field.name]), NoneType in get_args(hints[field.name]))
        for field in fields(section)
        if field.metadata  # sections and maps have none
    }


SETTINGS: dict[str, Setting] = {
    key: setting
    for name, section in [(None, ServeConfig), *SECTIONS.items()]
    for key, setting in _settings_of(section, name).items()
}
MAP_SETTINGS: dict[str, dict[str, Setting]] = {name: _settings_of(section, name) for name, section in MAPS.items()}


def add(layer: Layer, spelling: str, given: Given) -> None:
    """Put what was given under a setting's name or alias. Raises ConfigError where the layer has it already."""
    name = ALIASES.get(spelling, spelling)
    if name in layer:
        raise ConfigError(f"{name} is given twice ({layer[name].origin} and {given.origin})")
    layer[name] = Given(said_as(spelling, given.text), given.origin)
