"""A configuration file as texts, each with its line. Knows which keys there are and where, not what they mean."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from .errors import ConfigError
from .settings import MAP_SETTINGS, MAPS, NOTHING, SECTIONS, SETTINGS, Given, Layer, add
from .spellings import ALIASES, instead


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a map: where it begins, and what it says of its fields."""

    origin: str
    fields: Layer = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileLayer:
    """What a file says: settings, and the entries of its maps by name."""

    settings: Layer = field(default_factory=dict)
    maps: dict[str, dict[str, Entry]] = field(default_factory=lambda: {name: {} for name in MAPS})


def read_config_file(path: Path) -> FileLayer:
    """Raises ConfigError for what is no YAML, unknown, misplaced or there twice."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read configuration file {path}: {' '.join(str(error).split())}") from None
    return _Reader(path.name).read(root) if root else FileLayer()


class _Key(NamedTuple):
    """A line `key: value` of the file."""

    word: str
    value: yaml.Node
    origin: str


class _Reader:
    """Walks the nodes of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._layer = FileLayer()

    def read(self, root: yaml.Node) -> FileLayer:
        first: dict[str, _Key] = {}
        for key in self._keys(root, self._file):
            before = first.setdefault(key.word, key)
            if before is not key and (key.word in MAPS or key.word in SECTIONS):
                raise ConfigError(f"section {key.word} is there twice ({before.origin} and {key.origin})")
            if key.word in MAPS:
                self._read_map(key)
            elif key.word in SECTIONS:
                for inner in self._keys(key.value, f"{self._file}, section {key.word}"):
                    _add(self._layer.settings, key.word, inner)
            else:
                _add(self._layer.settings, None, key)
        return self._layer

    def _read_map(self, section: _Key) -> None:
        entries = self._layer.maps[section.word]
        for name in self._keys(section.value, f"{self._file}, section {section.word}"):
            if not name.word.strip():
                raise ConfigError(f"{name.origin}: a name in section {section.word} must not be empty")
            if (first := entries.get(name.word)) is not None:
                raise ConfigError(
                    f"{name.word} is there twice in section {section.word} ({first.origin} and {name.origin})"
                )
            entry = entries[name.word] = Entry(name.origin)
            for key in self._keys(name.value, f"{self._file}, {name.word} in section {section.word}"):
                _add(entry.fields, section.word, key)

    def _keys(self, node: yaml.Node, where: str) -> Iterator[_Key]:
        """The lines of a mapping; a null has none."""
        if isinstance(node, yaml.ScalarNode) and node.value in NOTHING:
            return
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{where} must hold `key: value` lines")
        for key, value in node.value:
            origin = f"{self._file} line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{origin}: a key must be a plain word")
            yield _Key(str(key.value), value, origin)


def _add(layer: Layer, section: str | None, key: _Key) -> None:
    _check_place(section, key)
    add(layer, key.word, Given(_text(section, key), key.origin))


def _text(section: str | None, key: _Key) -> str:
    """The value as flags would write it. Raises ConfigError."""
    values = [key.value]
    if isinstance(key.value, yaml.SequenceNode) and section in MAPS and MAP_SETTINGS[section][key.word].many:
        values = key.value.value
    if not all(isinstance(value, yaml.ScalarNode) for value in values):
        raise ConfigError(f"{key.word} must be a single value ({key.origin})")
    text = ", ".join(str(value.value) for value in values)
    if isinstance(key.value, yaml.SequenceNode) and text in NOTHING:  # none are not all, which unset would mean
        raise ConfigError(f"{key.word} must name at least one ({key.origin})")
    return text


def _check_place(section: str | None, key: _Key) -> None:
    """Raise ConfigError unless the key belongs in this section; None is the top level."""
    name = ALIASES.get(key.word, key.word)
    here = MAP_SETTINGS[section] if section in MAPS else SETTINGS
    if name in here and here[name].section == section:
        return
    if name in SETTINGS:
        home = SETTINGS[name].section
        place = "at the top level" if home is None else f"in section {home}"
        raise ConfigError(f"{key.word} belongs {place} ({key.origin})")
    for home, settings in MAP_SETTINGS.items():
        if name in settings:
            raise ConfigError(f"{key.word} belongs under a name in section {home} ({key.origin})")
    known = here if section in MAPS else [*SETTINGS, *ALIASES, *SECTIONS, *MAPS]
    raise ConfigError(f"unknown key {key.word!r} ({key.origin}){instead(key.word, known)}")
