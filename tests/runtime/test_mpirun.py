import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jetway.runtime.config import ExecutorConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.mpirun import find_mpirun, num_ranks, start_ranks
from jetway.runtime.preflight import read_manifest
from tests.support.tokenizers import byte_level, write_engine
from tests.support.trt_manifest import make_document, write_document

TP_2_PP_2 = {
    "pretrained_config.mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2},
    "jetway.files": {f"rank{rank}.engine": 4 for rank in range(4)},
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH; it holds an mpirun."""
    return executable(tmp_path / "programs" / "mpirun", monkeypatch)


def executable(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file.parent.mkdir()
    file.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(file.parent))
    return file.parent


def test_a_tensorrt_engine_has_the_ranks_it_was_built_for(tmp_path: Path) -> None:
    write_document(make_document(TP_2_PP_2), tmp_path)
    manifest = read_manifest(tmp_path)
    assert num_ranks(manifest, ExecutorConfig()) == 4
    assert num_ranks(manifest, ExecutorConfig(pp_size=2)) == 4
    with pytest.raises(ConfigError, match="^pp_size is 3, but the TensorRT engine was built with pp_size 2; leave it"):
        num_ranks(manifest, ExecutorConfig(pp_size=3))


def test_stages_of_a_simulation_are_threads(tmp_path: Path) -> None:
    write_document(make_document(TP_2_PP_2), tmp_path)
    assert num_ranks(read_manifest(tmp_path), ExecutorConfig(backend="simulated", pp_size=3)) == 1


def test_another_engine_has_as_many_as_stages(tmp_path: Path) -> None:
    manifest = replace(read_manifest(write_engine(tmp_path, byte_level())), num_hidden_layers=2)
    assert num_ranks(manifest, ExecutorConfig()) == 1
    assert num_ranks(manifest, ExecutorConfig(pp_size=2)) == 2
    with pytest.raises(ConfigError, match="^pp_size is 3, but the engine has num_hidden_layers 2; pass no more$"):
        num_ranks(manifest, ExecutorConfig(pp_size=3))
    assert num_ranks(manifest, ExecutorConfig(backend="simulated", pp_size=3)) == 1


def test_one_rank_needs_no_mpirun() -> None:
    settings = ExecutorConfig(mpirun="no-such-mpirun")
    assert start_ranks(["python", "-m", "role"], settings, 1) == ["python", "-m", "role"]


def test_several_ranks_end_with_the_supervisor(programs: Path) -> None:
    settings = ExecutorConfig(python="/opt/trt/bin/python", mpirun="mpirun --bind-to none")
    assert start_ranks(["python", "role"], settings, 4) == [
        *(sys.executable, "-m", "jetway.runtime.tied"),
        *(str(programs / "mpirun"), "--bind-to", "none", "-n", "4", "python", "role", "--num-ranks", "4"),
    ]


def test_the_executors_environment_comes_before_the_path(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = executable(tmp_path / "own" / "mpirun", monkeypatch)
    monkeypatch.setenv("PATH", str(programs))
    assert find_mpirun(ExecutorConfig(python=str(own / "python"))) == [str(own / "mpirun")]
    assert find_mpirun(ExecutorConfig(python="/nowhere/python")) == [str(programs / "mpirun")]


def test_an_absolute_mpirun_is_taken_as_it_is(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = executable(tmp_path / "other" / "mpirun", monkeypatch) / "mpirun"
    assert find_mpirun(ExecutorConfig(mpirun=f"{other} -x A")) == [str(other), "-x", "A"]


def test_a_missing_mpirun_is_refused_with_the_remedy(programs: Path) -> None:
    message = "mpiexec.hydra is neither in /nowhere nor on the PATH: install the MPI that mpi4py uses"
    with pytest.raises(ConfigError, match=message):
        find_mpirun(ExecutorConfig(python="/nowhere/python", mpirun="mpiexec.hydra -n 2"))


@pytest.mark.parametrize("words", ["", "mpirun 'x"])
def test_mpirun_must_be_a_command_line(words: str) -> None:
    with pytest.raises(ConfigError, match="^mpirun must be a command line, not "):
        find_mpirun(ExecutorConfig(mpirun=words))
