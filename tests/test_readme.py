"""The README's list of modules is the tree."""

import re

from tests.conftest import ROOT

FOLDERS = ("builder", "runtime", "scheduler")


def test_every_module_has_its_line_and_every_line_its_module() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `(\S+)`: ", readme, re.MULTILINE)
    modules = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py"}
    modules |= {path for path in (ROOT / "proto" / "jetway").glob("*.py") if path.name != "__init__.py"}
    modules |= set((ROOT / "proto" / "jetway" / "v1").glob("*.proto"))
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in modules)
