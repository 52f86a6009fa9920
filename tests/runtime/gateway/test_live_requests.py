"""Many requests on one stream: what goes up, and who hears what comes down."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from jetway.runtime.errors import DeadlineExceeded, Overloaded, Unavailable
from jetway.runtime.gateway import generation
from jetway.runtime.gateway.inbox import End, Gathered, Inbox
from jetway.runtime.gateway.live_requests import MAX_WAITING_MESSAGES, LiveRequests
from jetway.scheduler.request import Request, SamplingParams
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, STOP, accepted, cached, queued, refused, sampled, scored

CANCELLED, FAILED, EXPIRED = (
    common_pb2.FINISH_REASON_CANCELLED,
    common_pb2.FINISH_REASON_FAILED,
    common_pb2.FINISH_REASON_EXPIRED,
)


def request(n: int = 1, deadline_s: float | None = None) -> Request:
    sampling = SamplingParams(temperature=0.5, seed=7, logit_bias=((3, -1.5),))
    return Request(id="r", prompt=[1, 2], sampling=sampling, max_tokens=5, n=n, deadline_s=deadline_s)


async def sent(outgoing: AsyncIterator[scheduler_pb2.SessionRequest], count: int) -> list[scheduler_pb2.SessionRequest]:
    """The next messages that go up."""
    return [await anext(outgoing) for _ in range(count)]


class Asked:
    """One request, and what is heard of it."""

    def __init__(self, live: LiveRequests, n: int = 1, deadline_s: float | None = None) -> None:
        self.inbox = Inbox(1)
        [self.generation] = live.add([request(n, deadline_s)], self.inbox)

    async def heard(self) -> list[Gathered]:
        """Everything that was said of it by now."""
        return await heard(self.inbox)


async def heard(inbox: Inbox) -> list[Gathered]:
    gathered = []
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0):
                gathered.append(await inbox.next())
    return gathered


async def test_add_says_everything_about_the_request() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    Asked(live, n=2)

    [message] = await sent(outgoing, 1)
    sampling = common_pb2.SamplingParams(
        temperature=0.5, top_k=0, top_p=1, min_p=0, repetition_penalty=1, presence_penalty=0, frequency_penalty=0,
        logit_bias_tokens=[3], logit_bias_values=[-1.5], min_tokens=0, ignore_eos=False, seed=7,
    )  # fmt: skip
    add = scheduler_pb2.Add(
        handle=1, request_id="r", prompt=[1, 2], max_tokens=5, sampling=sampling, n=2, service_class="standard"
    )
    assert message == scheduler_pb2.SessionRequest(add=add)


async def test_tokens_gather_until_somebody_looks() -> None:
    live = LiveRequests()
    first, second = Asked(live), Asked(live)

    live.receive(scheduler_pb2.SessionFrame(accepted=[1, 2], token_handles=[1, 2, 1], token_indices=[0, 0, 0],
                                                  tokens=[10, 20, 11]))  # fmt: skip
    live.receive(sampled(1, [12], LENGTH))
    live.receive(cached(sampled(2, [], STOP), 1))

    assert await first.heard() == [Gathered(0, [10, 11, 12], end=End(LENGTH))]
    assert await second.heard() == [Gathered(0, [20], end=End(STOP, num_cached_tokens=1))]


async def test_logprobs_gather_with_their_tokens() -> None:
    live = LiveRequests()
    plain, with_logprobs = Asked(live), Asked(live)
    frame = scheduler_pb2.SessionFrame(token_handles=[1, 2, 2], token_indices=[0, 0, 0], tokens=[9, 10, 11])
    scores = [common_pb2.TokenLogprobs(logprob=-position) for position in range(3)]

    frame.logprob_rows.extend([1, 2])
    frame.logprobs.extend(scores[:2])
    live.receive(frame)
    live.receive(scored(sampled(2, [12]), scores[2:]))

    assert await plain.heard() == [Gathered(0, [9])]
    assert await with_logprobs.heard() == [Gathered(0, [10, 11, 12], scores)]


async def test_request_ends_when_all_of_its_sequences_have() -> None:
    live = LiveRequests()
    asked = Asked(live, n=2)

    live.receive(sampled(1, [10], STOP))
    assert await asked.heard() == [Gathered(0, [10], end=End(STOP))]
    assert not asked.generation.ended
    live.receive(queued(sampled(1, [11], LENGTH, index=1), 0.5))

    assert await asked.heard() == [Gathered(1, [11], end=End(LENGTH, queued_s=0.5))]
    assert asked.generation.ended


async def test_requests_of_one_call_number_their_choices_through() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    inbox = Inbox(2)
    _, second = live.add([request(n=2), request(n=2)], inbox)

    live.receive(accepted(1))
    live.receive(sampled(1, [10], index=1))
    live.receive(accepted(2))
    live.receive(sampled(2, [20], index=1))
    await inbox.accepted()
    second.finish(2, kept_tokens=1)

    assert await heard(inbox) == [Gathered(1, [10]), Gathered(3, [20])]
    *_, finish = await sent(outgoing, 3)
    assert finish.finish == scheduler_pb2.Finish(handle=2, sequence_index=0, kept_tokens=1)


async def test_cancel_goes_up_once_and_nothing_more_is_heard() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    asked = Asked(live)

    asked.generation.cancel()
    asked.generation.cancel()
    live.receive(accepted(1))
    live.receive(sampled(1, [10], CANCELLED))
    Asked(live)

    _, cancel, add = await sent(outgoing, 3)
    assert cancel == scheduler_pb2.SessionRequest(cancel=scheduler_pb2.Cancel(handle=1))
    assert add.add.handle == 2
    assert await asked.heard() == []


async def test_cancel_after_the_end_says_nothing() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    asked = Asked(live)
    live.receive(sampled(1, [10], STOP))

    asked.generation.cancel()
    Asked(live)

    messages = await sent(outgoing, 2)
    assert [message.WhichOneof("action") for message in messages] == ["add", "add"]


async def test_finish_drops_overshoot_and_waits_for_the_end() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    asked = Asked(live)
    live.receive(sampled(1, [10, 11]))
    assert await asked.heard() == [Gathered(0, [10, 11])]

    asked.generation.finish(0, kept_tokens=1)
    live.receive(sampled(1, [12]))
    assert not asked.generation.ended
    live.receive(cached(sampled(1, [13], STOP), 1))

    _, finish = await sent(outgoing, 2)
    assert finish.finish == scheduler_pb2.Finish(handle=1, sequence_index=0, kept_tokens=1)
    assert await asked.heard() == [Gathered(0, end=End(STOP, num_cached_tokens=1))]
    assert asked.generation.ended


async def test_refusal_is_the_error_that_it_names() -> None:
    live = LiveRequests()
    asked = Asked(live)

    live.receive(
        refused(
            1,
            common_pb2.Error(
                code=common_pb2.ERROR_CODE_OVERLOADED, message="too many", param="prompt", retry_after_s=7
            ),
        )
    )

    with pytest.raises(Overloaded, match="too many") as caught:
        await asked.inbox.accepted()
    assert (caught.value.param, caught.value.retry_after_s) == ("prompt", 7)
    assert asked.generation.ended


@pytest.mark.parametrize(
    ("reason", "error", "expected"),
    [
        (FAILED, common_pb2.Error(code=common_pb2.ERROR_CODE_ENGINE_FAILED, message="NaN"), "EngineFailed('NaN')"),
        (FAILED, None, "EngineFailed('the engine failed on this request')"),
        (EXPIRED, None, "DeadlineExceeded('the request took longer than it may')"),
        (CANCELLED, None, "Cancelled('the scheduler cancelled this request')"),
        (FAILED, common_pb2.Error(code=99, message="new"), "Internal('new')"),  # type: ignore[arg-type]  # of the future
    ],
)
async def test_end_without_an_answer_has_an_error(
    reason: common_pb2.FinishReason.ValueType, error: common_pb2.Error | None, expected: str
) -> None:
    live = LiveRequests()
    asked = Asked(live)

    live.receive(sampled(1, [], reason, error))

    [gathered] = await asked.heard()
    assert gathered.end is not None
    assert (gathered.end.reason, repr(gathered.end.error)) == (reason, expected)


async def test_lost_stream_ends_its_requests_as_unavailable_unless_they_are_whole() -> None:
    live = LiveRequests()
    waiting, running, finishing = Asked(live), Asked(live), Asked(live)
    live.receive(scheduler_pb2.SessionFrame(accepted=[2, 3]))
    live.receive(sampled(2, [10]))
    finishing.generation.finish(0, kept_tokens=0)

    live.lose("gone")

    with pytest.raises(Unavailable, match="gone"):
        await waiting.inbox.accepted()
    [gathered] = await running.heard()
    assert gathered.tokens == [10]
    assert gathered.end is not None
    assert isinstance(gathered.end.error, Unavailable)
    assert await finishing.heard() == [Gathered(0, end=End(STOP, num_cached_tokens=None))]


async def test_stream_that_is_far_behind_takes_no_more_requests_but_every_cancel() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    asked = [Asked(live) for _ in range(MAX_WAITING_MESSAGES)]

    with pytest.raises(Overloaded, match="4096 messages wait"):
        Asked(live)
    asked[0].generation.cancel()

    messages = await sent(outgoing, MAX_WAITING_MESSAGES + 1)
    assert messages[-1].cancel.handle == 1


async def test_what_is_given_up_is_cancelled_where_it_may_still_run() -> None:
    live = LiveRequests()
    outgoing = live.begin()
    Asked(live)
    live.lose("gone")
    add, cancel = await sent(outgoing, 2)
    assert (add.add.handle, cancel.cancel.handle) == (1, 1)


async def test_a_choice_that_was_finishing_ends_whatever_the_next_scheduler_says() -> None:
    live = LiveRequests()
    asked = Asked(live, n=2)
    live.receive(accepted(1))
    live.begin()
    asked.generation.finish(0, kept_tokens=0)
    live.receive(refused(1, common_pb2.Error(code=common_pb2.ERROR_CODE_INVALID_ARGUMENT, message="no")))
    first, second = sorted(await asked.heard(), key=lambda each: each.choice)
    assert first.end == End(STOP, num_cached_tokens=None)
    assert second.end is not None
    assert str(second.end.error) == "no"


async def test_a_deadline_holds_while_the_scheduler_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it hangs or is gone; one that comes later is told, or not asked at all."""
    monkeypatch.setattr(generation, "PATIENCE_S", 0.0)
    live = LiveRequests()
    outgoing = live.begin()
    running, waiting, finishing, patient = (Asked(live, deadline_s=limit_s) for limit_s in (0.001, 0.001, 0.001, 60.0))
    live.receive(scheduler_pb2.SessionFrame(accepted=[1, 3, 4]))
    live.receive(sampled(1, [10]))
    finishing.generation.finish(0, kept_tokens=0)

    with pytest.raises(DeadlineExceeded, match="the deadline passed after 0.00"):
        await waiting.inbox.accepted()
    gathered = [await running.inbox.next(), await finishing.inbox.next()]

    assert gathered[0].tokens == [10]
    assert gathered[0].end is not None
    assert (gathered[0].end.reason, type(gathered[0].end.error)) == (EXPIRED, DeadlineExceeded)
    assert gathered[1] == Gathered(0, end=End(STOP, num_cached_tokens=None))
    assert await patient.heard() == []
    assert {message.cancel.handle for message in (await sent(outgoing, 7))[5:]} == {1, 2}
    [asked_again] = await sent(live.begin(), 1)
    assert asked_again.add.handle == 4
    patient.generation.cancel()


async def test_a_deadline_is_nothing_to_a_request_that_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "PATIENCE_S", 0.0)
    live = LiveRequests()
    outgoing = live.begin()
    asked = Asked(live, deadline_s=0.001)
    asked.generation.cancel()
    await asyncio.sleep(0.002)
    Asked(live)
    messages = await sent(outgoing, 3)
    assert [message.WhichOneof("action") for message in messages] == ["add", "cancel", "add"]
    assert await asked.heard() == []
