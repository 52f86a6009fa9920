"""An output directory appears whole or not at all, and nothing is left beside it."""

import fcntl
import os
from pathlib import Path

import pytest

from jetway.builder.errors import OutputError
from jetway.builder.staging import staged


def contents(directory: Path) -> dict[str, str]:
    """Every file below, by its relative name."""
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_publishes_when_the_block_ends(tmp_path: Path) -> None:
    output = tmp_path / "new" / "engine"
    with staged(output) as directory:
        (directory / "model").write_text("new")
        assert not output.exists()
    assert contents(tmp_path) == {"new/engine/model": "new"}
    assert [path.name for path in output.parent.iterdir()] == ["engine"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), staged(tmp_path / "engine") as directory:
        (directory / "model").write_text("new")
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_replaces_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "engine"
    output.mkdir()
    (output / "old").write_text("old")
    with staged(output) as directory:
        (directory / "model").write_text("new")
        assert contents(output) == {"old": "old"}
    assert contents(tmp_path) == {"engine/model": "new"}


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_failure_keeps_what_is_there(tmp_path: Path, failure: type[BaseException]) -> None:
    output = tmp_path / "engine"
    output.mkdir()
    (output / "old").write_text("old")
    with pytest.raises(failure), staged(output) as directory:
        (directory / "model").write_text("new")
        raise failure
    assert contents(tmp_path) == {"engine/old": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


def test_cleans_what_a_killed_build_left(tmp_path: Path) -> None:
    for name in (".engine.building", ".engine.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("half")
    with staged(tmp_path / "engine") as directory:
        assert list(directory.iterdir()) == []
        (directory / "model").write_text("new")
    assert contents(tmp_path) == {"engine/model": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


def test_a_second_build_of_the_same_output_is_refused(tmp_path: Path) -> None:
    """And leaves the first one's files alone."""
    output = tmp_path / "engine"
    with staged(output) as directory:
        (directory / "model").write_text("first")
        with pytest.raises(OutputError) as refused, staged(output):
            pass
        assert contents(directory) == {"model": "first"}
    assert str(refused.value) == f"{output}: another build is writing it. Wait for it, or stop it."
    assert contents(output) == {"model": "first"}


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    building = tmp_path / ".engine.building"
    building.mkdir()
    descriptor = os.open(building, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(OutputError), staged(tmp_path / "engine"):
        pass
    os.close(descriptor)
    with staged(tmp_path / "engine") as directory:
        (directory / "model").write_text("new")
    assert contents(tmp_path) == {"engine/model": "new"}


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    output = tmp_path / "file" / "engine"
    with pytest.raises(OutputError) as refused, staged(output):
        pass
    assert str(refused.value).startswith(f"{output}: cannot be written (")
    assert str(refused.value).endswith("Choose another --output-dir.")
    assert contents(tmp_path) == {"file": "in the way"}
