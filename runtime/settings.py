"""Every scalar key of `config.py` as a setting: its section, flag and environment variable, and text to value.

All sources give text (a flag, the environment, a YAML scalar), so there is one parser, and none of YAML 1.1's surprises:
`off` is a word and `010` is ten.
"""

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from .config import ConfigSection, ExecutorConfig, GatewayConfig, SchedulerConfig, ServeConfig, check_value
from .errors import ConfigError

ALIASES = {"max_batch_size": "max_num_seqs", "max_num_tokens": "max_num_batched_tokens"}  # TensorRT-LLM's names

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


class Kind(NamedTuple):
    """How text becomes a value: `parse` raises ValueError, `words` say what it wants."""

    parse: Callable[[str], object]
    words: str


_KINDS: dict[object, Kind] = {
    int: Kind(int, "a whole number"),
    float: Kind(float, "a number"),
    str: Kind(str, "text"),
    Path: Kind(Path, "a path"),
    "bytes": Kind(parse_bytes, "a size such as 4096, 512MiB or 1GiB"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One scalar key. `section` is None at the top level; `type` is the annotation without its None."""

    section: str | None
    field: Field[Any]
    type: object
    optional: bool

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def required(self) -> bool:
        return self.field.default is MISSING

    @property
    def help(self) -> str:
        return str(self.field.metadata["help"])

    @property
    def _kind(self) -> object:
        return self.field.metadata["unit"] or (str if get_origin(self.type) is Literal else self.type)

    def parse(self, text: str, origin: str) -> object:
        """The value that `text` means. Raises ConfigError that names key, text and origin."""
        if self.optional and text in ("", "null", "~"):
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
        return format_bytes(value) if self._kind == "bytes" and isinstance(value, int) else str(value)


SECTIONS: dict[str, type[ConfigSection]] = {
    "executor": ExecutorConfig,
    "scheduler": SchedulerConfig,
    "gateway": GatewayConfig,
}


def _settings_of(section: type[ConfigSection], name: str | None) -> list[Setting]:
    hints = get_type_hints(section)
    found = []
    for field in fields(section):
        hint = hints[field.name]
        if field.name in SECTIONS:
            continue
        options = [arg for arg in get_args(hint) if arg is not NoneType]
        optional = NoneType in get_args(hint)
        found.append(Setting(name, field, options[0] if optional else hint, optional))
    return found


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for name, section in [(None, ServeConfig), *SECTIONS.items()]
    for setting in _settings_of(section, name)
}
