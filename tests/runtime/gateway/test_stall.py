"""Clients that stand still."""

import asyncio

import pytest

from jetway.runtime.gateway.stall import StallLimit


async def test_write_that_is_never_read_ends_the_block() -> None:
    wrote = []
    with pytest.raises(TimeoutError):
        async with StallLimit(0.01) as stall:
            await stall.wait(asyncio.sleep(0))
            wrote.append("first")
            await stall.wait(asyncio.Event().wait())
            wrote.append("second")

    assert wrote == ["first"]


async def test_time_between_writes_does_not_count() -> None:
    async with StallLimit(0.001) as stall:
        await stall.wait(asyncio.sleep(0))
        assert not stall.waiting
        await asyncio.sleep(0.01)
        await stall.wait(asyncio.sleep(0))


async def test_errors_and_cancellations_of_the_block_are_its_own() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with StallLimit(1.0):
            raise ValueError("mine")

    async def write_for_ever() -> None:
        async with StallLimit(1.0) as stall:
            await stall.wait(asyncio.Event().wait())

    task = asyncio.create_task(write_for_ever())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
