"""The scheduler's end against a real executor: results in order, and one error for every way to lose it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jetway.runtime.errors import Fenced, Unavailable
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executor.steps import Slots
from tests.runtime.executor.driving import make_description, make_plan, make_simulated
from tests.runtime.executor.loopback import first_plan


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ExecutorServer]:
    server = ExecutorServer(make_simulated(), f"unix:{tmp_path}/executor.sock")
    server.start()
    yield server
    server.stop()


async def test_describes_and_steps(server: ExecutorServer, tmp_path: Path) -> None:
    slots = Slots(make_simulated())
    plans = [first_plan(), make_plan(2, rows=[(0, 1)]), make_plan(3, rows=[(0, 1)])]
    client = await ExecutorClient.connect(f"unix:{tmp_path}/executor.sock", 1)
    assert client.engine == make_description()
    for plan in plans:
        await client.send(plan)
    for plan in plans:
        result, expected = await client.receive(), slots.run(plan)
        assert (result.step, result.slots, result.tokens) == (expected.step, expected.slots, expected.tokens)
    await client.close()


async def test_an_illegal_plan_is_reported_with_the_executors_words(server: ExecutorServer, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/executor.sock"
    client = await ExecutorClient.connect(address, 1)
    await client.send(replace(first_plan(), step=7))
    lost = f"the executor at {address} is lost: INVALID_ARGUMENT: step 7 follows step 0"
    with pytest.raises(Unavailable, match=lost):
        await client.receive()
    await client.close()


async def test_a_fenced_client_is_told_so(server: ExecutorServer, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/executor.sock"
    old = await ExecutorClient.connect(address, 1)
    await old.send(first_plan())
    await old.receive()
    new = await ExecutorClient.connect(address, 2)
    await new.send(first_plan())
    await new.receive()
    with pytest.raises(Fenced, match="ABORTED: a session of the newer epoch 2 has begun"):
        await old.receive()
    await old.close()
    await new.close()


async def test_a_lost_executor_is_unavailable_to_every_call(server: ExecutorServer, tmp_path: Path) -> None:
    """Also to a send after the session has ended, as after a loss between two steps."""
    client = await ExecutorClient.connect(f"unix:{tmp_path}/executor.sock", 1)
    await client.send(first_plan())
    await client.receive()
    server.stop()
    with pytest.raises(Unavailable, match="is lost: UNAVAILABLE"):
        await client.receive()
    with pytest.raises(Unavailable, match="is lost: UNAVAILABLE"):
        await client.send(make_plan(2))
    assert "is lost: UNAVAILABLE" in (await client.ended()).message
    await client.close()


async def test_an_executor_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is lost: DEADLINE_EXCEEDED"):
        await ExecutorClient.connect(f"unix:{tmp_path}/nobody.sock", 1, timeout_s=0.01)


async def test_an_executor_that_comes_late_gets_a_session_that_lives(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/executor.sock"
    connecting = asyncio.create_task(ExecutorClient.connect(address, 1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(connecting), 0.2)
    server = ExecutorServer(make_simulated(), address)
    await asyncio.to_thread(server.start)
    client = await connecting
    await client.send(first_plan())
    assert (await client.receive()).step == 1
    await client.close()
    await asyncio.to_thread(server.stop)
