"""MpiRanks under a real mpirun, each rank running tests/support/mpi_ranks.py."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from jetway.runtime.executor.mpi_ranks import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, pause_s
from tests.support.mpi import MPIRUN, needs_mpi
from tests.support.mpi_ranks import LARGE

PROGRAM = Path(__file__).resolve().parents[2] / "support" / "mpi_ranks.py"


def run(num_ranks: int, scene: str) -> list[str]:
    """What the ranks printed but for their names, in any order; each has said its name and ended well."""
    argv: list[str | Path] = [str(MPIRUN), "-n", str(num_ranks), sys.executable, PROGRAM, str(num_ranks), scene]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    lines = sorted(done.stdout.splitlines())
    names = [f"rank {rank} of {num_ranks}" for rank in range(num_ranks)]
    assert [line for line in lines if line.startswith("rank ")] == names
    return [line for line in lines if not line.startswith("rank ")]


@needs_mpi
def test_messages_keep_their_order_and_channels_do_not_wait_for_each_other() -> None:
    assert run(3, "order") == ["plan: True"] * 2 + ["sampled: True"] * 2


@needs_mpi
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_nobody_waits_for_a_receiver(num_ranks: int) -> None:
    digest = sha256(LARGE).hexdigest()
    assert run(num_ranks, "ring") == [f"from {rank}: {digest}" for rank in range(num_ranks)]


@needs_mpi
def test_one_thread_sends_while_another_waits() -> None:
    assert run(3, "threads") == ["answers: True"]


@needs_mpi
def test_a_large_message_arrives_though_its_sender_does_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIR_CVAR_CH4_CMA_ENABLE", "0")  # or MPICH lets the receiver read it out of the sender's memory
    assert run(2, "silent") == [f"received {sha256(LARGE).hexdigest()}"]


@needs_mpi
def test_a_message_may_be_empty() -> None:
    assert run(2, "empty") == ["received b''"]


@needs_mpi
def test_what_mpi_refuses_fails_the_engine() -> None:
    assert run(2, "nobody") == ["EngineFailed: the ranks cannot speak to each other"] * 2


@needs_mpi
def test_a_rank_alone_is_refused() -> None:
    """As under the mpirun of another MPI, which each rank takes for no mpirun at all."""
    done = subprocess.run([sys.executable, PROGRAM, "2", "order"], check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stdout.startswith("2 ranks were started, but MPI counts 1: mpirun is of another MPI than mpi4py's")


def test_a_missing_library_is_refused() -> None:
    program = f"""
import runpy, sys
sys.modules["mpi4py"] = None  # as if it were not installed
sys.argv[1:] = ["2", "order"]
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stdout.startswith("several ranks need mpi4py and an MPI library; install jetway-llm[mpi]: ")


@pytest.mark.parametrize(
    ("waited_s", "pause"),
    [(0.0, SHORTEST_PAUSE_S), (0.001, SHORTEST_PAUSE_S), (0.064, 0.001), (1.0, LONGEST_PAUSE_S), (3600.0, 0.005)],
)
def test_a_pause_is_a_small_part_of_the_wait_within_bounds(waited_s: float, pause: float) -> None:
    assert pause_s(waited_s) == pytest.approx(pause)
