"""A build that is killed, or finds no room: no engine, nothing half, and the next build is a whole one."""

import errno
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from jetway.builder import manifest
from jetway.builder.errors import OutputError
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from tests.builder import killed_builds

CONVERTED = {"model.bin", "model.xml", ".finished.json"}


@pytest.fixture(scope="session")
def killed(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each stage a directory, with what a build left that was killed as that stage began."""
    directory = tmp_path_factory.mktemp("killed")
    command = [sys.executable, killed_builds.__file__, str(tiny_checkpoint), str(directory)]
    subprocess.run(command, check=True)
    return directory


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("stage", "left"),
    [
        ("inspect", None),
        ("validate", None),
        ("convert", set()),
        ("compile", CONVERTED),
        ("manifest", CONVERTED),
        ("verify", CONVERTED | {"config.json", "tokenizer.json", "chat_template.jinja"}),
    ],
)
def test_killed(
    killed: Path, tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path, stage: str, left: set[str] | None
) -> None:
    """What is left is beside the engine's place, and the next build makes an engine of it or takes it away."""
    parent = killed / stage
    if left is None:
        assert not parent.exists()
        return
    assert [path.name for path in parent.iterdir()] == [".engine.building"]
    assert {path.name for path in (parent / ".engine.building").iterdir()} == left
    shown: list[str] = []
    built = build(
        BuildSpec(model_dir=tiny_checkpoint, output_dir=parent / "engine"), Progress(shown.append), force=False
    )
    assert any("converted by an earlier build" in text for text in shown) == bool(left)
    assert [path.name for path in parent.iterdir()] == ["engine"]
    assert manifest.read(parent / "engine") == built
    assert set(built.files) | {"config.json"} == {path.name for path in (parent / "engine").iterdir()}
    assert (parent / "engine" / "model.bin").read_bytes() == (tiny_engine / "model.bin").read_bytes()


def refusal(spec: BuildSpec) -> OutputError:
    with pytest.raises(OutputError) as refused:
        build(spec, Progress(lambda text: None), force=False)
    return refused.value


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let writes beyond so many bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_disk_full_while_the_model_is_written(tiny_checkpoint: Path, tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    with largest_file(100_000):
        error = refusal(BuildSpec(model_dir=tiny_checkpoint, output_dir=engine))
    assert str(error).startswith(f"{engine}: cannot be written (model.xml and model.bin: ")
    assert str(error).endswith("MB are free). Choose another --output-dir.")
    assert list(tmp_path.iterdir()) == []


def test_disk_full_while_the_rest_is_written(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that is there is kept."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "tokenizer.json")

    monkeypatch.setattr("jetway.builder.tokenizer.write", fail)
    engine = tmp_path / "engine"
    error = refusal(BuildSpec(model_dir=tiny_checkpoint, output_dir=engine))
    expected = f"{engine}: cannot be written ([Errno 28] No space left on device: 'tokenizer.json'). Choose another"
    assert str(error) == f"{expected} --output-dir."
    assert [path.name for path in tmp_path.iterdir()] == [".engine.building"]
    assert {path.name for path in (tmp_path / ".engine.building").iterdir()} == CONVERTED
    assert error.__notes__ == [
        f"The converted model is kept in {tmp_path / '.engine.building'}; the same command goes on from it."
    ]


def test_too_small_a_disk_is_found_before(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(total=10**6, used=900_000, free=100_000))
    error = refusal(BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "engine"))
    assert str(error) == (
        f"{tmp_path / 'engine'}: the engine takes about 0.4 MB, and 0.1 MB are free there. Make room, or "
        "choose another --output-dir."
    )
    assert list(tmp_path.iterdir()) == []


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int
