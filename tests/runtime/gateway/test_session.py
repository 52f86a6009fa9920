"""The session with the scheduler over a real stream: refusals, cancellation, loss and reconnection."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from jetway.runtime.errors import Internal, InvalidArgument, Overloaded, Unavailable
from jetway.runtime.gateway.inbox import Inbox
from jetway.runtime.gateway.session import SchedulerSession
from jetway.scheduler.request import Request, SamplingParams
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import (
    ENGINE,
    LENGTH,
    FakeScheduler,
    accepted,
    answering,
    refused,
    refusing,
    sampled,
)

REQUEST = Request(id="r", prompt=[1, 2], sampling=SamplingParams())


@pytest.fixture
async def session(scheduler: FakeScheduler) -> AsyncIterator[SchedulerSession]:
    session = SchedulerSession(scheduler.address)
    session.start()
    await session.connected.wait()
    yield session
    await session.close()


async def submit(session: SchedulerSession, *requests: Request) -> Inbox:
    """Returns once all are accepted: where they are heard."""
    inbox = Inbox(len(requests))
    await session.submit(requests, inbox)
    return inbox


async def tokens_of(inbox: Inbox) -> list[int]:
    """Of a request of one sequence, to its end."""
    tokens: list[int] = []
    while True:
        gathered = await inbox.next()
        tokens += gathered.tokens
        if gathered.end is not None:
            return tokens


async def test_first_frame_says_what_is_served(session: SchedulerSession) -> None:
    assert session.engine == ENGINE


async def test_submit_returns_once_the_request_is_accepted(session: SchedulerSession, scheduler: FakeScheduler) -> None:
    submitting = asyncio.create_task(submit(session, REQUEST))
    add = await scheduler.adds.get()
    assert not submitting.done()

    scheduler.send(accepted(add.handle))
    inbox = await submitting
    scheduler.send(sampled(add.handle, [5, 6], LENGTH))

    assert await tokens_of(inbox) == [5, 6]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (common_pb2.ERROR_CODE_INVALID_ARGUMENT, InvalidArgument),
        (common_pb2.ERROR_CODE_OVERLOADED, Overloaded),
        (common_pb2.ERROR_CODE_INTERNAL, Internal),
    ],
)
async def test_refused_request_raises_what_the_scheduler_names(
    session: SchedulerSession,
    scheduler: FakeScheduler,
    code: common_pb2.ErrorCode.ValueType,
    expected: type[Exception],
) -> None:
    scheduler.script = refusing(code, "no", "prompt")

    with pytest.raises(expected, match="no"):
        await submit(session, REQUEST)


async def test_refusal_of_one_request_of_a_call_cancels_the_others(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    overloaded = common_pb2.Error(code=common_pb2.ERROR_CODE_OVERLOADED, message="no room")
    scheduler.script = lambda add: [refused(add.handle, overloaded) if add.handle == 2 else accepted(add.handle)]

    with pytest.raises(Overloaded, match="no room"):
        await submit(session, REQUEST, REQUEST, REQUEST)

    assert [await scheduler.cancels.get(), await scheduler.cancels.get()] == [1, 3]
    assert scheduler.cancels.empty()


async def test_stats_are_the_schedulers(session: SchedulerSession, scheduler: FakeScheduler) -> None:
    scheduler.stats = scheduler_pb2.StatsResponse(num_running=3)

    assert await session.stats() == scheduler.stats


async def test_scheduler_that_says_no_stats_is_unavailable(session: SchedulerSession, scheduler: FakeScheduler) -> None:
    scheduler.stats = None

    with pytest.raises(Unavailable, match="does not say its figures: no figures"):
        await session.stats()


async def test_submit_that_is_cancelled_cancels_the_request(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    submitting = asyncio.create_task(submit(session, REQUEST))
    add = await scheduler.adds.get()

    submitting.cancel()
    assert await scheduler.cancels.get() == add.handle
    scheduler.send(accepted(add.handle))

    scheduler.script = answering([9])
    assert await tokens_of(await submit(session, REQUEST)) == [9]


async def test_wait_for_news_that_is_cancelled_leaves_the_request_to_its_owner(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    inbox = await submit(session, REQUEST)
    waiting = asyncio.create_task(inbox.next())
    await asyncio.sleep(0)

    waiting.cancel()
    add = await scheduler.adds.get()
    scheduler.send(sampled(add.handle, [5], LENGTH))

    assert await tokens_of(inbox) == [5]


async def test_lost_stream_ends_live_requests_and_is_opened_again(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    inbox = await submit(session, REQUEST)

    scheduler.end_session()

    gathered = await inbox.next()
    assert gathered.end is not None
    assert isinstance(gathered.end.error, Unavailable)
    with pytest.raises(Unavailable, match="no connection to the scheduler"):
        await submit(session, REQUEST)
    await session.connected.wait()
    scheduler.script = answering([9])
    assert await tokens_of(await submit(session, REQUEST)) == [9]


async def test_another_scheduler_at_the_address_is_found(session: SchedulerSession, scheduler: FakeScheduler) -> None:
    await scheduler.__aexit__(None, None, None)
    await session.lost.wait()

    async with FakeScheduler(scheduler.address) as other:
        await session.connected.wait()
        other.script = answering([9])
        assert await tokens_of(await submit(session, REQUEST)) == [9]


async def test_session_without_a_scheduler_refuses() -> None:
    session = SchedulerSession("unix:/nonexistent.sock")
    session.start()

    with pytest.raises(Unavailable):
        await submit(session, REQUEST)
    with pytest.raises(Unavailable):
        _ = session.engine
    await session.close()


async def test_close_ends_live_requests_as_unavailable(scheduler: FakeScheduler) -> None:
    session = SchedulerSession(scheduler.address)
    session.start()
    await session.connected.wait()
    submitting = asyncio.create_task(submit(session, REQUEST))
    await scheduler.adds.get()

    await session.close()

    with pytest.raises(Unavailable, match="shutting down"):
        await submitting
