"""Requests that can be stopped by their names."""

import asyncio

import pytest

from jetway.runtime.gateway.kserve.running import RequestName, RunningRequests, Stopped

MINE = RequestName("me", "7")


async def test_what_waits_is_stopped_and_what_was_waited_for_is_cancelled() -> None:
    running = RunningRequests()
    with (
        running.entered(MINE) as first,
        running.entered(MINE) as second,
        running.entered(RequestName("you", "7")) as other,
    ):
        news: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
        waits = [asyncio.create_task(each.wait(future)) for each, future in zip((first, second, other), news)]
        await asyncio.sleep(0)
        running.stop(MINE)
        for stopped in waits[:2]:
            with pytest.raises(Stopped):
                await stopped
        assert [future.cancelled() for future in news] == [True, True, False]
        news[2].set_result("news")
        assert await waits[2] == "news"


async def test_a_stop_is_not_lost_between_two_waits() -> None:
    running = RunningRequests()
    with running.entered(MINE) as request:
        assert await request.wait(asyncio.sleep(0, "news")) == "news"
        running.stop(MINE)
        with pytest.raises(Stopped):
            await request.wait(asyncio.Event().wait())


async def test_what_has_ended_is_not_found() -> None:
    running = RunningRequests()
    with running.entered(MINE):
        pass
    running.stop(MINE)
    with running.entered(MINE) as next_one:
        assert await next_one.wait(asyncio.sleep(0, "news")) == "news"
