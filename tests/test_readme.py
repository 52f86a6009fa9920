"""The README's list of modules is the tree, and its configuration one that can be served."""

import re
from pathlib import Path

from jetway.runtime.layers import resolve
from jetway.runtime.settings import Given
from tests.conftest import ROOT

FOLDERS = ("builder", "runtime", "scheduler")


def test_every_module_has_its_line_and_every_line_its_module() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `(\S+)`: ", readme, re.MULTILINE)
    modules = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py"}
    modules |= {path for path in (ROOT / "proto" / "jetway").glob("*.py") if path.name != "__init__.py"}
    modules |= set((ROOT / "proto" / "jetway" / "v1").glob("*.proto"))
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in modules)


def test_the_example_of_classes_is_a_configuration(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    file = tmp_path / "serve.yaml"
    file.write_text(example)
    config = resolve({"engine": Given("engine", "test")}, {}, file).config
    assert {name: each.level for name, each in config.classes.items()} == {"interactive": 1, "standard": 2, "batch": 3}
