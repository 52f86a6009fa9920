"""What stands at the output directory before a build: the same engine, another one, or something that is not ours."""

import json
from pathlib import Path

from . import manifest
from .errors import OutputError
from .manifest import Manifest, ManifestError
from .plan import Plan


def find(plan: Plan, engine_id: str) -> Manifest | None:
    """The engine in the output directory, if it is whole and the one that is planned."""
    spec = plan.spec
    try:
        found = manifest.read(spec.output_dir)
    except ManifestError:
        return None
    asked_limits = (spec.max_batch_size, spec.max_num_tokens, plan.max_seq_len)
    limits = (found.max_batch_size, found.max_num_tokens, found.max_seq_len)
    return found if found.engine_id == engine_id and limits == asked_limits else None


def check_free(output_dir: Path, *, force: bool) -> None:
    """Raise OutputError unless a new engine may take this place. `force` gives up an engine, never anything else."""
    if not output_dir.exists() or (output_dir.is_dir() and not any(output_dir.iterdir())):
        return
    if not _is_engine(output_dir):
        raise OutputError(f"{output_dir}: exists and is not an engine directory. Choose another --output-dir.")
    if not force:
        raise OutputError(
            f"{output_dir}: holds another engine, or this one incomplete. Pass --force to replace it, or choose another "
            "--output-dir."
        )


def _is_engine(directory: Path) -> bool:
    try:
        return "jetway" in json.loads((directory / manifest.CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False
