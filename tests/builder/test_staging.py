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
    with staged(output) as staging:
        (staging.directory / "model").write_text("new")
        assert not output.exists()
    assert contents(tmp_path) == {"new/engine/model": "new"}
    assert [path.name for path in output.parent.iterdir()] == ["engine"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), staged(tmp_path / "engine") as staging:
        (staging.directory / "model").write_text("new")
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_replaces_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "engine"
    output.mkdir()
    (output / "old").write_text("old")
    with staged(output) as staging:
        (staging.directory / "model").write_text("new")
        assert contents(output) == {"old": "old"}
    assert contents(tmp_path) == {"engine/model": "new"}


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_failure_keeps_what_is_there(tmp_path: Path, failure: type[BaseException]) -> None:
    output = tmp_path / "engine"
    output.mkdir()
    (output / "old").write_text("old")
    with pytest.raises(failure), staged(output) as staging:
        (staging.directory / "model").write_text("new")
        raise failure
    assert contents(tmp_path) == {"engine/old": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


def test_cleans_what_a_killed_build_left(tmp_path: Path) -> None:
    for name in (".engine.building", ".engine.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("half")
    with staged(tmp_path / "engine") as staging:
        assert staging.files() == {}
        (staging.directory / "model").write_text("new")
    assert contents(tmp_path) == {"engine/model": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


def test_a_second_build_of_the_same_output_is_refused(tmp_path: Path) -> None:
    """And leaves the first one's files alone."""
    output = tmp_path / "engine"
    with staged(output) as staging:
        (staging.directory / "model").write_text("first")
        with pytest.raises(OutputError) as refused, staged(output):
            pass
        assert contents(staging.directory) == {"model": "first"}
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
    with staged(tmp_path / "engine") as staging:
        (staging.directory / "model").write_text("new")
    assert contents(tmp_path) == {"engine/model": "new"}


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    output = tmp_path / "file" / "engine"
    with pytest.raises(OutputError) as refused, staged(output):
        pass
    assert str(refused.value).startswith(f"{output}: cannot be written (")
    assert str(refused.value).endswith("Choose another --output-dir.")
    assert contents(tmp_path) == {"file": "in the way"}


def fail_after_stage(output: Path, key: str) -> list[str]:
    """A build that finishes a stage, writes more, and fails; returns what the failure says besides."""
    with pytest.raises(ValueError, match="later") as failure, staged(output) as staging:
        (staging.directory / "model").write_text("converted")
        staging.keep(key)
        (staging.directory / "tokenizer").write_text("half")
        raise ValueError("later")
    return failure.value.__notes__


def test_a_finished_stage_outlives_a_failure(tmp_path: Path) -> None:
    output = tmp_path / "engine"
    kept = tmp_path / ".engine.building"
    assert fail_after_stage(output, "key") == [
        f"The converted model is kept in {kept}; the same command goes on from it."
    ]
    assert {path.name for path in kept.iterdir()} == {"model", ".finished.json"}
    with staged(output) as staging:
        assert (staging.has("key"), staging.has("other")) == (True, False)
        assert staging.files() == {"model": 9}
    assert contents(tmp_path) == {"engine/model": "converted"}
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


def test_a_stage_that_is_not_wanted_goes(tmp_path: Path) -> None:
    """So there is never more than one of an output."""
    fail_after_stage(tmp_path / "engine", "key")
    with pytest.raises(ValueError, match="early"), staged(tmp_path / "engine") as staging:
        staging.clear()
        raise ValueError("early")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text"), [("model", "half"), (".finished.json", "{"), (".finished.json", "[]"), (".finished.json", "{}")]
)
def test_a_stage_that_is_not_whole_goes(tmp_path: Path, name: str, text: str) -> None:
    fail_after_stage(tmp_path / "engine", "key")
    (tmp_path / ".engine.building" / name).write_text(text)
    with staged(tmp_path / "engine") as staging:
        assert not staging.has("key")
        assert staging.files() == {}


def test_goes_back_to_what_a_killed_replacement_moved(tmp_path: Path) -> None:
    """The kill came between the two renames."""
    (tmp_path / ".engine.replaced").mkdir()
    (tmp_path / ".engine.replaced" / "old").write_text("old")
    with pytest.raises(ValueError, match="fails"), staged(tmp_path / "engine"):
        raise ValueError("fails")
    assert contents(tmp_path) == {"engine/old": "old"}
