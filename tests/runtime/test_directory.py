from pathlib import Path

import pytest

from jetway.runtime.directory import (
    LifeRecord,
    enter,
    leave,
    life_socket,
    lives,
    role_socket,
    runtime_directory,
    write_config,
)
from jetway.runtime.errors import ConfigError


def test_directory_is_private_and_removed(tmp_path: Path) -> None:
    with runtime_directory([str(tmp_path)]) as directory:
        assert directory.parent == tmp_path
        assert directory.stat().st_mode & 0o777 == 0o700
        life_socket(directory, "executor", 1).touch()
    assert list(tmp_path.iterdir()) == []


def test_a_parent_too_long_for_a_socket_is_passed_over(tmp_path: Path) -> None:
    long, short = tmp_path / ("x" * 100), tmp_path / "s"
    long.mkdir()
    short.mkdir()
    with runtime_directory([str(long), str(tmp_path / "absent"), str(short)]) as directory:
        assert directory.parent == short
    assert list(long.iterdir()) == []


def test_no_parent_is_a_config_error_that_names_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no runtime directory: .*absent"), runtime_directory([f"{tmp_path}/absent"]):
        pass


def test_a_full_directory_is_a_config_error(tmp_path: Path) -> None:
    """Directories in the places of files stand for a full disk."""
    with runtime_directory([str(tmp_path)]) as directory:
        (directory / "serve.yaml").mkdir()
        with pytest.raises(ConfigError, match="cannot hold the configuration: Is a directory"):
            write_config(directory, "engine: demo")


def test_the_directory_of_a_living_process_is_kept(tmp_path: Path) -> None:
    with runtime_directory([str(tmp_path)]) as first, runtime_directory([str(tmp_path)]) as second:
        assert set(tmp_path.iterdir()) == {first, second}


def test_what_is_not_surely_ours_and_dead_is_kept(tmp_path: Path) -> None:
    others = {tmp_path / "jetway-unlocked", tmp_path / "jetway-link", tmp_path / "other", tmp_path / "jetway-file"}
    elsewhere = tmp_path / "other"
    (tmp_path / "jetway-unlocked").mkdir()
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "jetway-link").symlink_to(elsewhere)
    (tmp_path / "jetway-file").touch()
    with runtime_directory([str(tmp_path)]):
        pass
    assert set(tmp_path.iterdir()) == others
    assert (elsewhere / "lock").exists()


def test_the_others_find_the_present_life(tmp_path: Path) -> None:
    for epoch in (1, 2):
        life_socket(tmp_path, "executor", epoch).write_text(f"life {epoch}")
        enter(tmp_path, life("executor", epoch))
        assert role_socket(tmp_path, "executor").read_text() == f"life {epoch}"
        assert lives(tmp_path)[-1] == life("executor", epoch)
    leave(tmp_path, "executor", 1)
    leave(tmp_path, "executor", 2)
    assert list(tmp_path.iterdir()) == []
    leave(tmp_path, "executor", 2)


def test_a_life_that_listens_elsewhere_is_on_record_only(tmp_path: Path) -> None:
    for epoch in (10, 9):
        enter(tmp_path, life("gateway", epoch))
    assert lives(tmp_path) == [life("gateway", 9), life("gateway", 10)]
    assert not role_socket(tmp_path, "gateway").is_symlink()
    leave(tmp_path, "gateway", 9)
    assert lives(tmp_path) == [life("gateway", 10)]


def life(role: str, epoch: int) -> LifeRecord:
    return LifeRecord(role, epoch, pids=[7], num_restarts=1, started_s=2.5)
