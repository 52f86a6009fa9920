"""Where a configuration comes from: flags over environment over a file over defaults, with the origin of every value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .config import ConfigSection, ServeConfig
from .config_file import Entry, FileLayer, read_config_file
from .errors import ConfigError
from .fields import Contradiction
from .settings import MAP_SETTINGS, MAPS, SECTIONS, SETTINGS, Given, Layer, Setting, add
from .spellings import ALIASES

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration, and where each setting's value came from.

    Of maps, `origins` knows the section, and each value as "section.name.key".
    """

    config: ServeConfig
    origins: dict[str, str]

    def to_yaml(self) -> str:
        """A file for `--config` that gives the same configuration; a comment a line says where the value came from."""
        return "\n".join([*self._sections(), *self._maps()]) + "\n"

    def _sections(self) -> Iterator[str]:
        section = None
        for setting in SETTINGS.values():
            if setting.section != section:
                section = setting.section
                yield f"{section}:"
            holder = getattr(self.config, section) if section else self.config
            indent = "  " if section else ""
            yield f"{indent}{_line(setting, holder)}  # {self.origins[setting.name]}"

    def _maps(self) -> Iterator[str]:
        for section, settings in MAP_SETTINGS.items():
            entries: Mapping[str, ConfigSection] = getattr(self.config, section)
            if entries:
                yield f"{section}:"
            for name, entry in entries.items():
                yield f"  {_quoted(name)}:"
                for setting in settings.values():
                    yield f"    {_line(setting, entry)}  # {self.origins[f'{section}.{name}.{setting.name}']}"


def _line(setting: Setting, holder: ConfigSection) -> str:
    value = getattr(holder, setting.name)
    text = setting.format(value)
    return f"{setting.name}: {_quoted(text) if isinstance(value, str | Path | tuple) else text}"


def _quoted(text: str) -> str:
    """A YAML scalar, quoted where it has to be."""
    style = None if text.isprintable() else '"'  # keeps a line break inside its line
    return yaml.safe_dump(text, default_style=style, allow_unicode=True, width=1 << 20).splitlines()[0]


def resolve(flags: Layer, environ: Mapping[str, str], config_file: Path | None) -> Resolved:
    """Merge the layers; what none of them names keeps its default. Raises ConfigError."""
    file = read_config_file(config_file) if config_file else FileLayer()
    given = {**file.settings, **environment_layer(environ), **flags}
    if "engine" not in given:
        raise ConfigError("engine is missing: it is the first argument, or a key of the configuration file")
    origins = {name: given[name].origin if name in given else DEFAULT for name in SETTINGS}
    maps: dict[str, Any] = {section: _read_map(section, entries, origins) for section, entries in file.maps.items()}
    try:
        parts: dict[str, Any] = {name: kind(**_values(_section(name), given)) for name, kind in SECTIONS.items()}
        return Resolved(ServeConfig(**_values(_section(None), given), **parts, **maps), origins)
    except Contradiction as error:
        raise ConfigError(f"{error.message} ({', '.join(origins[key] for key in error.keys)})") from None


def _section(name: str | None) -> dict[str, Setting]:
    return {key: setting for key, setting in SETTINGS.items() if setting.section == name}


def _values(settings: Mapping[str, Setting], given: Layer) -> dict[str, Any]:
    """What was given of these settings, parsed."""
    return {key: setting.parse(given[key]) for key, setting in settings.items() if key in given}


def _read_map(section: str, entries: Mapping[str, Entry], origins: dict[str, str]) -> dict[str, ConfigSection]:
    """A map's entries by name. Adds the origins of the map and of its values."""
    settings = MAP_SETTINGS[section]
    origins[section] = next((entry.origin for entry in entries.values()), DEFAULT)
    for name, entry in entries.items():
        for key, setting in settings.items():
            if setting.required and key not in entry.fields:
                raise ConfigError(f"{key} of {name} in section {section} is missing ({entry.origin})")
            origins[f"{section}.{name}.{key}"] = entry.fields[key].origin if key in entry.fields else DEFAULT
    return {name: MAPS[section](**_values(settings, entry.fields)) for name, entry in entries.items()}


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """JETWAY_<KEY>, in capitals. Other JETWAY_ variables are not ours to judge: tests and container runtimes set some."""
    layer: Layer = {}
    for spelling in [*SETTINGS, *ALIASES]:
        variable = f"JETWAY_{spelling.upper()}"
        if variable in environ:
            add(layer, spelling, Given(environ[variable], f"environment {variable}"))
    return layer
