"""Where a configuration comes from: flags over environment over YAML over defaults, with the origin of every value."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from .config import ServeConfig
from .errors import ConfigError
from .settings import ALIASES, SECTIONS, SETTINGS, Setting

DEFAULT = "default"


class Given(NamedTuple):
    """A value as it was written, and where."""

    text: str
    origin: str


Layer = dict[str, Given]  # by setting name


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration, and where each setting's value came from."""

    config: ServeConfig
    origins: dict[str, str]

    def to_yaml(self) -> str:
        """A file for `--config` that gives the same configuration; a comment a line says where the value came from."""
        lines: list[str] = []
        section = None
        for setting in SETTINGS.values():
            if setting.section != section:
                section = setting.section
                lines.append(f"{section}:")
            holder = getattr(self.config, setting.section) if setting.section else self.config
            indent = "  " if setting.section else ""
            text = _scalar(setting, getattr(holder, setting.name))
            lines.append(f"{indent}{setting.name}: {text}  # {self.origins[setting.name]}")
        return "\n".join(lines) + "\n"


def _scalar(setting: Setting, value: object) -> str:
    text = setting.format(value)
    if not isinstance(value, str | Path):
        return text
    style = None if text.isprintable() else '"'  # keeps a line break inside its line
    return yaml.safe_dump(text, default_style=style, allow_unicode=True, width=1 << 20).splitlines()[0]


def resolve(flags: Layer, environ: Mapping[str, str], config_file: Path | None) -> Resolved:
    """Merge the layers; what none of them names keeps its default. Raises ConfigError."""
    layers = [flags, environment_layer(environ), yaml_layer(config_file) if config_file else {}]
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, setting in SETTINGS.items():
        given = next((layer[name] for layer in layers if name in layer), None)
        origins[name] = given.origin if given else DEFAULT
        if given:
            values[name] = setting.parse(given.text, given.origin)
        elif setting.required:
            raise ConfigError(f"{name} is missing: it is the first argument, or a key of the configuration file")
    return Resolved(_build(values), origins)


def _build(values: dict[str, object]) -> ServeConfig:
    """Distribute the values over the sections; the dataclasses fill in defaults and check what spans several keys."""
    parts: dict[str, object] = {}
    for section, kind in SECTIONS.items():
        own = {name: value for name, value in values.items() if SETTINGS[name].section == section}
        parts[section] = kind(**own)  # type: ignore[arg-type]  # each value was parsed to its field's type
    top = {name: value for name, value in values.items() if SETTINGS[name].section is None}
    return ServeConfig(**top, **parts)  # type: ignore[arg-type]  # as above


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """JETWAY_<KEY>, in capitals. Other JETWAY_ variables are not ours to judge: tests and container runtimes set some."""
    layer: Layer = {}
    for spelling in [*SETTINGS, *ALIASES]:
        variable = f"JETWAY_{spelling.upper()}"
        if variable in environ:
            _add(layer, spelling, Given(environ[variable], f"environment {variable}"))
    return layer


def yaml_layer(path: Path) -> Layer:
    """The settings of a YAML file, each with its line. Raises ConfigError for what is unknown, misplaced or twice."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read configuration file {path}: {' '.join(str(error).split())}") from None
    layer: Layer = {}
    for key, value in _entries(root, path.name) if root else ():
        if key.value in SECTIONS:
            for inner, inner_value in _entries(value, f"{path.name}, section {key.value}"):
                _add_node(layer, key.value, inner, inner_value, path.name)
        else:
            _add_node(layer, None, key, value, path.name)
    return layer


def _entries(node: yaml.Node, where: str) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~"):
        return
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{where} must hold `key: value` lines")
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{where} line {key.start_mark.line + 1}: a key must be a plain word")
        yield key, value


def _add_node(layer: Layer, section: str | None, key: yaml.ScalarNode, value: yaml.Node, file: str) -> None:
    origin = f"{file} line {key.start_mark.line + 1}"
    spelling = str(key.value)
    setting = SETTINGS.get(ALIASES.get(spelling, spelling))
    if setting is None:
        raise ConfigError(f"unknown key {spelling!r} ({origin}){nearest(spelling, [*SETTINGS, *ALIASES, *SECTIONS])}")
    if setting.section != section:
        place = f"in section {setting.section}" if setting.section else "at the top level"
        raise ConfigError(f"{spelling} belongs {place} ({origin})")
    if not isinstance(value, yaml.ScalarNode):
        raise ConfigError(f"{spelling} must be a single value ({origin})")
    _add(layer, spelling, Given(value.value, origin))


def _add(layer: Layer, spelling: str, given: Given) -> None:
    name = ALIASES.get(spelling, spelling)
    if name in layer:
        raise ConfigError(f"{name} is given twice ({layer[name].origin} and {given.origin})")
    layer[name] = given


def nearest(word: str, known: list[str]) -> str:
    """A question after an error message where something known is close enough to `word`; else nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
