"""An executor of several ranks, each a process under a real mpirun (tests/support/rank.py)."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from jetway.runtime.child import Child, Command, Listener
from jetway.runtime.config import ExecutorConfig
from jetway.runtime.errors import ConfigError, Unavailable
from jetway.runtime.mpirun import start_ranks
from tests.support.mpi import needs_mpi
from tests.support.processes import Running, is_alive

SUPPORT = Path(__file__).resolve().parent.parent / "support"
NUM_RANKS = 2
PLACES = {"mpirun": 0, "proxy": -NUM_RANKS - 1, "rank 0": -NUM_RANKS, "rank 1": 1 - NUM_RANKS}  # in `everything_of`

pytestmark = needs_mpi

Start = Callable[[str], Awaitable[Child]]


@pytest.fixture
def lines() -> list[str]:
    """What the ranks logged."""
    return []


@pytest.fixture
async def start(tmp_path: Path, lines: list[str]) -> AsyncIterator[Start]:
    """Starts ranks that behave in a certain way, and returns when all have met.

    In the end they are killed as the supervisor would, and nothing of them is left.
    """
    children: list[Child] = []
    started: list[psutil.Process] = []

    async def run(behaviour: str) -> Child:
        argv = [sys.executable, str(SUPPORT / "rank.py"), "executor", behaviour]
        argv = start_ranks(argv, ExecutorConfig(), NUM_RANKS)
        argv += ["--config", str(tmp_path / "serve.yaml"), "--epoch", "1"]
        command = Command("executor", argv, [], tmp_path / "life.sock")
        child = await Child.start(command, Listener(lines.append, Mock()))
        children.append(child)
        while len(list(tmp_path.glob("rank-*"))) < NUM_RANKS:  # bounded by the test's timeout
            await asyncio.sleep(0.005)
        started.extend(everything_of(child))
        return child

    yield run
    for child in children:
        await child.kill()
    while any(is_alive(process.pid) for process in started):  # bounded by the test's timeout
        await asyncio.sleep(0.005)


def everything_of(child: Child) -> list[psutil.Process]:
    """mpirun, its proxies if it has any, and the ranks in their order."""
    ranks = [psutil.Process(pid) for pid in child.pids]
    above = ranks[0].parents()
    return [*reversed(above[: above.index(psutil.Process())]), *ranks]


async def test_rank_0_speaks_for_all_and_ends_all_in_order(start: Start, lines: list[str], tmp_path: Path) -> None:
    child = await start("serve")
    assert await child.ready() == {"ranks": "2"}
    assert child.pids == [int((tmp_path / f"rank-{rank}-1").read_text()) for rank in range(NUM_RANKS)]
    assert await child.stop(bound_s=10) is None
    assert sorted(lines) == [f"rank {rank} stopped" for rank in range(NUM_RANKS)]


@pytest.mark.parametrize("behaviour", ["serve", "load"])
@pytest.mark.parametrize("place", PLACES)
async def test_whatever_is_killed_nothing_is_left(start: Start, behaviour: str, place: str) -> None:
    child = await start(behaviour)
    if behaviour == "serve":
        await child.ready()
    everything_of(child)[PLACES[place]].send_signal(signal.SIGKILL)
    end = await child.ended()
    assert end.startswith(("the executor lost rank", "the executor was killed by SIGKILL"))
    if behaviour == "load":
        with pytest.raises(Unavailable):
            await child.ready()


@pytest.mark.parametrize("num_stopped", [1, NUM_RANKS])
async def test_ranks_that_stand_still_are_killed(start: Start, num_stopped: int) -> None:
    """In the end, as everything here is: `start` sees to it, and that nothing is left."""
    child = await start("serve")
    await child.ready()
    for rank in everything_of(child)[-num_stopped:]:
        rank.send_signal(signal.SIGSTOP)


async def test_a_rank_that_fails_ends_all(start: Start) -> None:
    """Which of the ranks is missed first is mpirun's affair: it ends the others at once."""
    child = await start("fail")
    with pytest.raises(Unavailable, match="^the executor lost rank"):
        await child.ready()


async def test_a_refusal_of_any_rank_is_one_of_the_executor(start: Start) -> None:
    child = await start("refuse")
    with pytest.raises(ConfigError, match="^executor: threads must be even$"):
        await child.ready()


async def test_a_stop_while_they_load_is_clean(start: Start) -> None:
    child = await start("load")
    assert await child.stop(bound_s=10) is None


def ranks_of(runtime_parent: Path, epoch: int) -> list[int]:
    """The pids of the ranks of one life, rank 0 first."""
    return [int(file.read_text()) for file in sorted(runtime_parent.glob(f"*/rank-*-{epoch}"))]


@contextmanager
def supervised(runtime_parent: Path, **settings: str) -> Iterator[Running]:
    argv = [sys.executable, str(SUPPORT / "supervise.py"), f"ranks={NUM_RANKS}"]
    with Running.start(argv, runtime_parent, port="0", grpc_port="0", **settings) as running:
        running.wait_for("Ctrl-C stops")
        yield running


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_supervisor_replaces_the_whole_group(tmp_path: Path, number: int) -> None:
    with supervised(tmp_path, hang_timeout_s="1") as running:
        before = ranks_of(tmp_path, 1)
        os.kill(before[0], number)
        running.wait_for("executor ready", times=2)
        assert not any(is_alive(pid) for pid in before)
        after = ranks_of(tmp_path, 4)
        assert all(is_alive(pid) for pid in after)
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0
    assert (len(before), len(after)) == (NUM_RANKS, NUM_RANKS)
    assert not any(is_alive(pid) for pid in after)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("num_stopped", [0, NUM_RANKS])
def test_no_rank_outlives_a_killed_supervisor(tmp_path: Path, num_stopped: int) -> None:
    """Not even when all of them are stopped."""
    with supervised(tmp_path) as running:
        executor = psutil.Process(ranks_of(tmp_path, 1)[0]).parents()
        mpirun = executor[executor.index(psutil.Process(running.pid)) - 1]
        everything = [mpirun, *mpirun.children(recursive=True)]
        for pid in ranks_of(tmp_path, 1)[:num_stopped]:
            os.kill(pid, signal.SIGSTOP)
        running.send_signal(signal.SIGKILL)
        while any(is_alive(process.pid) for process in everything):  # bounded by the test's timeout
            time.sleep(0.005)
