"""The fields of an engine directory's `config.json`, each checked to be what is asked for."""

import json
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class ManifestError(ValueError):
    """The directory is not an engine that this version can serve; says file, field, value and remedy."""

    def __init__(self, path: Path, problem: str, remedy: str = "Build the engine with build-engine") -> None:
        super().__init__(f"{path}: {problem}. {remedy}.")


class Fields:
    """The values of a JSON file by dotted name, each checked to be of the type that is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._root: object = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ManifestError(path, "does not exist", "Pass a directory that build-engine wrote") from None
        except (OSError, ValueError) as error:
            raise ManifestError(path, f"is not readable JSON ({error})") from error

    def error(self, name: str, value: object, why: str) -> ManifestError:
        return ManifestError(self._path, f"{name} is {value!r}; {why}")

    def value(self, name: str) -> object:
        node = self._root
        for key in name.split("."):
            if not isinstance(node, dict) or key not in node:
                raise ManifestError(self._path, f"has no {name}")
            node = node[key]
        return node

    def optional(self, name: str) -> object:
        """The value, or None where engines built before this field was there have none."""
        try:
            return self.value(name)
        except ManifestError:
            return None

    def integer(self, name: str) -> int:
        value = self.value(name)
        if type(value) is not int or value < 1:
            raise self.error(name, value, "it must be a positive integer")
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str) or not value:
            raise self.error(name, value, "it must be a text")
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if type(value) is not bool:
            raise self.error(name, value, "it must be true or false")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.value(name) is None else self.text(name)

    def optional_choice(self, name: str, known: tuple[str, ...]) -> str | None:
        return None if self.optional(name) is None else self.choice(name, known)

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in known:
            raise self.error(name, value, f"this version knows {', '.join(known)}")
        return value

    def table(self, name: str, kind: type[T]) -> dict[str, T]:
        value = self.value(name)
        if not isinstance(value, dict) or not all(type(item) is kind for item in value.values()):
            raise self.error(name, value, f"it must map names to {kind.__name__}")
        return value
