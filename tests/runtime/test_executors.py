"""One executor after the other over real sockets: nothing is lost, and an older session never speaks again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jetway.runtime.config import SchedulerConfig
from jetway.runtime.errors import Fenced
from jetway.runtime.executor.client import Executors
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executors import step_with_each
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.runtime.serve import make_scheduler
from jetway.scheduler.events import Event, RequestFinished, SequenceFinished, TokenSampled
from jetway.scheduler.request import SequenceId
from jetway.scheduler.scheduler import Scheduler
from tests.runtime.executor.driving import make_simulated
from tests.support.scheduling import make_request

IDS = "abcdef"


class Followed:
    """Requests stepped with one executor after the other; `after(n)` returns once n more tokens were said."""

    def __init__(self, depth: int) -> None:
        self.tokens: dict[SequenceId, list[int]] = {}
        self.ends: list[str] = []
        self._depth = depth
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def stepping(self, address: str) -> AsyncIterator[Scheduler]:
        executors = Executors(address, life=1)
        session = await executors.connect()
        scheduler = make_scheduler(SchedulerConfig(), session.engine)
        work = asyncio.Event()
        loop = StepLoop(scheduler, self._take, work, lambda: 0.0, FixedOverlap(self._depth))
        for id in IDS:
            scheduler.add(make_request(id, prompt_len=4, max_tokens=36), 0.0)
        stepping = asyncio.create_task(step_with_each(scheduler, loop, session, executors.connect, lambda: 0.0))
        yield scheduler
        stepping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stepping

    def _take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case TokenSampled(sequence_id, token):
                    self.tokens.setdefault(sequence_id, []).append(token)
                case SequenceFinished(_, reason):
                    self.ends.append(reason)
                case RequestFinished():
                    pass
        self._news.set()

    async def until(self, num_tokens: int) -> None:
        while sum(map(len, self.tokens.values())) < num_tokens and len(self.ends) < len(IDS):
            self._news.clear()
            await self._news.wait()


async def run(address: str, depth: int, kill_after: list[int]) -> Followed:
    """To the end, with a new executor whenever so many tokens were said."""
    server = ExecutorServer(make_simulated(), address)
    await asyncio.to_thread(server.start)
    followed = Followed(depth)
    async with followed.stepping(address) as scheduler:
        for num_tokens in kill_after:
            await followed.until(num_tokens)
            await asyncio.to_thread(server.stop)
            server = ExecutorServer(make_simulated(), address)
            await asyncio.to_thread(server.start)
        await followed.until(1 << 30)
        scheduler.check()
        assert scheduler.stats(0.0).counters.num_losses <= len(kill_after)  # the last perhaps after the end
    await asyncio.to_thread(server.stop)
    return followed


@pytest.mark.parametrize("depth", [0, 1])
async def test_with_executors_that_come_and_go_the_tokens_are_those_of_one(tmp_path: Path, depth: int) -> None:
    address = f"unix:{tmp_path}/executor.sock"
    undisturbed = await run(address, 0, [])
    disturbed = await run(address, depth, [1, 30, 31, 100])
    assert disturbed.tokens == undisturbed.tokens
    assert disturbed.ends == undisturbed.ends == ["length"] * len(IDS)


async def test_a_later_life_of_the_scheduler_fences_the_earlier(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/executor.sock"
    server = ExecutorServer(make_simulated(), address)
    await asyncio.to_thread(server.start)
    first = Executors(address, life=1)
    old = [await first.connect() for _ in range(3)][-1]
    new = await Executors(address, life=2).connect()
    with pytest.raises(Fenced, match="newer epoch"):
        await old.receive()
    with pytest.raises(Fenced, match="is not newer than"):
        await (await first.connect()).receive()
    for client in (old, new):
        await client.close()
    await asyncio.to_thread(server.stop)
