"""kill -9 and SIGSTOP of each process, again and again under load."""

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos import TIMES
from tests.chaos.load import Clients, Progress, grpc_address, make_requests, settled
from tests.support.processes import Running
from tests.support.serving import READY, process_of, serving
from tests.support.tokenizers import byte_level, write_engine

NUM_REQUESTS = 40
SMALL_POOL = {"num_device_blocks": "24", "simulated_step_s": "0.001", "hang_timeout_s": "3"}


@pytest.fixture
def engine_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "engine"
    directory.mkdir()
    return write_engine(directory, byte_level())


async def disturb(running: Running, progress: Progress, victims: Sequence[tuple[str, int]], total: int) -> None:
    """One after the other, each once so much more has been read that every request could have moved on."""
    for number, (role, kind) in enumerate(victims, start=1):
        await progress.reach(total * number // (len(victims) + 2))
        process = await asyncio.to_thread(process_of, running, role)
        process.send_signal(kind)
        await asyncio.to_thread(process.wait)


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("roles", [("executor",), ("scheduler",), ("executor", "scheduler")])
async def test_what_computes_can_be_lost_and_no_request_is(engine_dir: Path, roles: tuple[str, ...]) -> None:
    """Every answer equals that of an undisturbed run, token for token, and the pools are empty in the end."""
    rng = random.Random(" ".join(roles))
    requests = make_requests(seed=7, count=NUM_REQUESTS * TIMES)
    kinds = [signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]
    victims = [(rng.choice(roles), kinds[number % 3]) for number in range(3 * TIMES)]
    with serving(engine_dir, **SMALL_POOL) as running:
        running.wait_for(READY)
        address = grpc_address(running)
        undisturbed = await Clients(lambda: address, Progress()).ask_all(requests)
        total = sum(len(tokens) for answer in undisturbed for tokens in answer.tokens)
        before = await settled(running)
        gateway = process_of(running, "gateway")
        num_fds = gateway.num_fds()
        progress = Progress()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(disturb(running, progress, victims, total))
            asking = tasks.create_task(Clients(lambda: address, progress).ask_all(requests))
        assert asking.result() == undisturbed
        after = await settled(running)
        while gateway.num_fds() > num_fds + 2:
            await asyncio.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        ended = running.end()
        assert ended.status == 0, ended.out[-2000:]
    assert after.num_free_device_blocks == before.num_free_device_blocks == 24
    assert after.num_free_host_blocks == before.num_free_host_blocks


@pytest.mark.timeout(120 * TIMES)
async def test_a_lost_gateway_is_seen_by_its_own_clients_only_as_retryable(engine_dir: Path) -> None:
    """Asked again, every request is answered as in an undisturbed run; what the dead had asked for is dropped."""
    requests = make_requests(seed=8, count=NUM_REQUESTS * TIMES)
    with serving(engine_dir, **SMALL_POOL) as running:
        running.wait_for(READY)
        undisturbed = await Clients(lambda: grpc_address(running), Progress()).ask_all(requests)
        total = sum(len(tokens) for answer in undisturbed for tokens in answer.tokens)
        progress = Progress()
        clients = Clients(lambda: grpc_address(running), progress)

        async def replace_gateway() -> None:
            await progress.reach(total // 3)
            process_of(running, "gateway").kill()
            await asyncio.to_thread(running.wait_for, "  grpc ", times=2)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(replace_gateway())
            asking = tasks.create_task(clients.ask_all(requests, clients.insist))
        assert asking.result() == undisturbed
        after = await settled(running)
        running.send_signal(signal.SIGTERM)
        ended = running.end()
        assert ended.status == 0, ended.out[-2000:]
    assert after.num_free_device_blocks == 24
