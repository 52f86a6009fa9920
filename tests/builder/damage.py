"""Ways to damage a checkpoint, and what a build says of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from jetway.builder.errors import CheckpointError
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build

Weights = dict[str, NDArray[Any]]
Damage = Callable[[Path], object]


def refusal(checkpoint: Path) -> tuple[str, str]:
    """The stage in which a build of it fails, and its error; nothing is left."""
    shown: list[str] = []
    engines = checkpoint.with_name("engines")
    with pytest.raises(CheckpointError) as refused:
        build(BuildSpec(model_dir=checkpoint, output_dir=engines / "engine"), Progress(shown.append), force=False)
    assert not engines.exists() or list(engines.iterdir()) == []
    assert shown[-1] == "failed\n"
    return "".join(shown).splitlines()[-1].split()[0], str(refused.value)


def with_weights(change: Callable[[Weights], object]) -> Damage:
    def damage(checkpoint: Path) -> None:
        weights = load_file(checkpoint / "model.safetensors")
        change(weights)
        save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})

    return damage


def with_config(**fields: object) -> Damage:
    def damage(checkpoint: Path) -> None:
        path = checkpoint / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return damage


def cut(name: str) -> Damage:
    return lambda checkpoint: (checkpoint / name).write_bytes((checkpoint / name).read_bytes()[:-100])


def with_tokenizer(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(checkpoint: Path) -> None:
        path = checkpoint / "tokenizer.json"
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        change(tokenizer)
        path.write_text(json.dumps(tokenizer), encoding="utf-8")

    return damage
