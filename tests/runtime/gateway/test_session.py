"""The session with the scheduler over a real stream: refusals, cancellation, loss and reconnection."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from jetway.runtime.errors import Internal, InvalidArgument, Overloaded, Unavailable
from jetway.runtime.gateway.inbox import Inbox
from jetway.runtime.gateway.session import SchedulerSession
from jetway.scheduler.request import Request, SamplingParams
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import (
    ENGINE,
    LENGTH,
    STOP,
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
    session = SchedulerSession(scheduler.address, 10.0)
    session.start()
    await session.connection.on.wait()
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


async def test_requests_go_on_over_the_next_stream_from_the_tokens_that_are_here(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    """What had ended is not asked for again; what was finishing is whole; tokens are heard once."""
    inbox = Inbox(1)
    scheduler.script = lambda add: [accepted(add.handle)]
    [generation] = await session.submit([replace(REQUEST, n=4, deadline_s=50.0)], inbox)
    first = await scheduler.adds.get()
    assert not first.generated
    for frame in (sampled(first.handle, [5, 6]), sampled(first.handle, [7], STOP, index=1)):
        scheduler.send(frame)
    scheduler.send(sampled(first.handle, [8], index=2))
    heard = [await inbox.next() for _ in range(3)]
    assert [(each.choice, each.tokens) for each in heard] == [(0, [5, 6]), (1, [7]), (2, [8])]
    generation.finish(2, kept_tokens=1)
    await scheduler.finishes.get()

    scheduler.end_session()
    again = await scheduler.adds.get()

    assert again.age_ms < 20_000
    again.age_ms = first.age_ms
    expected = scheduler_pb2.Add()
    expected.CopyFrom(first)
    expected.generated.add(sequence_index=0, tokens=[5, 6])
    expected.generated.add(sequence_index=3)
    assert again == expected
    scheduler.send(sampled(again.handle, [9], LENGTH))
    scheduler.send(sampled(again.handle, [10], LENGTH, index=3))
    ends: dict[int, list[int]] = {}
    while len(ends) < 3:
        gathered = await inbox.next()
        if gathered.end is not None:
            ends[gathered.choice] = gathered.tokens
            assert gathered.end.error is None
    assert ends == {2: [], 0: [9], 3: [10]}


async def test_a_request_that_was_not_accepted_is_asked_for_anew(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    submitting = asyncio.create_task(submit(session, REQUEST))
    first = await scheduler.adds.get()
    scheduler.end_session()
    again = await scheduler.adds.get()
    assert (again.handle, again.prompt, len(again.generated)) == (first.handle, first.prompt, 0)
    scheduler.send(accepted(again.handle))
    scheduler.send(sampled(again.handle, [9], LENGTH))
    assert await tokens_of(await submitting) == [9]


async def test_a_request_that_comes_while_the_scheduler_is_away_waits_for_it(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    scheduler.end_session()
    await session.connection.off.wait()
    scheduler.script = answering([9])
    assert await tokens_of(await submit(session, REQUEST)) == [9]


async def test_a_request_that_is_cancelled_meanwhile_is_not_asked_for_again(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    gone, _ = await session.submit([REQUEST, REQUEST], Inbox(2))
    await scheduler.adds.get(), await scheduler.adds.get()
    scheduler.end_session()
    await session.connection.off.wait()
    gone.cancel()
    assert (await scheduler.adds.get()).handle == 2
    assert scheduler.adds.empty()


async def test_what_another_scheduler_refuses_ends_with_its_reason(
    session: SchedulerSession, scheduler: FakeScheduler
) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    inbox = await submit(session, REQUEST)
    scheduler.script = refusing(common_pb2.ERROR_CODE_INVALID_ARGUMENT, "too long for this one", "prompt")
    scheduler.end_session()
    gathered = await inbox.next()
    assert gathered.end is not None
    assert str(gathered.end.error) == "too long for this one"


async def test_a_scheduler_that_stays_away_loses_its_requests(scheduler: FakeScheduler) -> None:
    session = SchedulerSession(scheduler.address, 0.0)
    session.start()
    await session.connection.on.wait()
    scheduler.script = lambda add: [accepted(add.handle)]
    inbox = await submit(session, REQUEST)

    await scheduler.__aexit__(None, None, None)

    gathered = await inbox.next()
    assert gathered.end is not None
    assert isinstance(gathered.end.error, Unavailable)
    with pytest.raises(Unavailable, match="no connection to the scheduler"):
        await submit(session, REQUEST)
    await session.close()


async def test_another_scheduler_at_the_address_is_found(session: SchedulerSession, scheduler: FakeScheduler) -> None:
    await scheduler.__aexit__(None, None, None)
    await session.connection.off.wait()

    async with FakeScheduler(scheduler.address) as other:
        await session.connection.on.wait()
        other.script = answering([9])
        assert await tokens_of(await submit(session, REQUEST)) == [9]


async def test_session_without_a_scheduler_refuses() -> None:
    session = SchedulerSession("unix:/nonexistent.sock", 10.0)
    session.start()

    with pytest.raises(Unavailable):
        await submit(session, REQUEST)
    with pytest.raises(Unavailable):
        _ = session.engine
    await session.close()


async def test_close_ends_live_requests_as_unavailable(scheduler: FakeScheduler) -> None:
    session = SchedulerSession(scheduler.address, 10.0)
    session.start()
    await session.connection.on.wait()
    submitting = asyncio.create_task(submit(session, REQUEST))
    await scheduler.adds.get()

    await session.close()

    with pytest.raises(Unavailable, match="shutting down"):
        await submitting
