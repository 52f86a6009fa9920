"""Writes the pages of docs/ that are made from code; with --check, says which of them differ, and fails."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.pages import config, errors, kserve, metrics, openai, openapi

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "config.md": config.page,
    "errors.md": errors.page,
    "kserve.md": kserve.page,
    "metrics.md": metrics.page,
    "openai.md": openai.page,
    "openapi.json": openapi.page,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [name for name, page in PAGES.items() if check and not is_fresh(DOCS / name, page())]
    for name in stale:
        print(f"docs/{name} is stale: run scripts/docs", file=sys.stderr)
    if not check:
        for name, page in PAGES.items():
            (DOCS / name).write_text(page(), encoding="utf-8")
    return 1 if stale else 0


def is_fresh(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
