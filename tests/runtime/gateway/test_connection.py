"""Many requests on one stream: what goes up, and who hears what comes down."""

import pytest

from jetway.runtime.errors import InvalidArgument, Overloaded, Unavailable
from jetway.runtime.gateway.connection import MAX_WAITING_MESSAGES, Connection
from jetway.runtime.gateway.generation import End, Gathered, Generation
from jetway.scheduler.request import Request, SamplingParams
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, STOP, accepted, refused, sampled

CANCELLED, FAILED, EXPIRED = (
    common_pb2.FINISH_REASON_CANCELLED,
    common_pb2.FINISH_REASON_FAILED,
    common_pb2.FINISH_REASON_EXPIRED,
)


def request(n: int = 1) -> Request:
    sampling = SamplingParams(temperature=0.5, seed=7, logit_bias=((3, -1.5),))
    return Request(id="r", prompt=[1, 2], sampling=sampling, max_tokens=5, n=n)


async def sent(connection: Connection, count: int) -> list[scheduler_pb2.SessionRequest]:
    """The next messages that go up."""
    outgoing = connection.outgoing()
    return [await anext(outgoing) for _ in range(count)]


async def everything(generation: Generation) -> list[Gathered]:
    return [gathered async for gathered in generation]


async def test_add_says_everything_about_the_request() -> None:
    connection = Connection()
    connection.add(request(n=2))

    [message] = await sent(connection, 1)
    sampling = common_pb2.SamplingParams(
        temperature=0.5, top_k=0, top_p=1, min_p=0, repetition_penalty=1, presence_penalty=0, frequency_penalty=0,
        logit_bias_tokens=[3], logit_bias_values=[-1.5], min_tokens=0, ignore_eos=False, seed=7,
    )  # fmt: skip
    add = scheduler_pb2.Add(handle=1, request_id="r", prompt=[1, 2], max_tokens=5, sampling=sampling, n=2)
    assert message == scheduler_pb2.SessionRequest(add=add)


async def test_tokens_gather_until_somebody_looks() -> None:
    connection = Connection()
    first, second = connection.add(request()), connection.add(request())

    connection.receive(scheduler_pb2.SessionFrame(accepted=[1, 2], token_handles=[1, 2, 1], token_indices=[0, 0, 0],
                                                  tokens=[10, 20, 11]))  # fmt: skip
    connection.receive(sampled(1, [12], LENGTH))
    connection.receive(sampled(2, [], STOP))

    assert await everything(first) == [Gathered(0, [10, 11, 12], End(LENGTH))]
    assert await everything(second) == [Gathered(0, [20], End(STOP))]


async def test_request_ends_when_all_of_its_sequences_have() -> None:
    connection = Connection()
    generation = connection.add(request(n=2))

    connection.receive(sampled(1, [10], STOP))
    assert await anext(generation) == Gathered(0, [10], End(STOP))
    assert not generation.ended
    connection.receive(
        scheduler_pb2.SessionFrame(
            token_handles=[1],
            token_indices=[1],
            tokens=[11],
            ends=[scheduler_pb2.SequenceEnd(handle=1, sequence_index=1, reason=LENGTH)],
        )
    )

    assert await everything(generation) == [Gathered(1, [11], End(LENGTH))]


async def test_cancel_goes_up_once_and_nothing_more_is_heard() -> None:
    connection = Connection()
    generation = connection.add(request())

    generation.cancel()
    generation.cancel()
    connection.receive(accepted(1))
    connection.receive(sampled(1, [10], CANCELLED))
    connection.add(request())

    _, cancel, add = await sent(connection, 3)
    assert cancel == scheduler_pb2.SessionRequest(cancel=scheduler_pb2.Cancel(handle=1))
    assert add.add.handle == 2
    assert await everything(generation) == []


async def test_cancel_after_the_end_says_nothing() -> None:
    connection = Connection()
    generation = connection.add(request())
    connection.receive(sampled(1, [10], STOP))

    generation.cancel()
    connection.add(request())

    messages = await sent(connection, 2)
    assert [message.WhichOneof("action") for message in messages] == ["add", "add"]


async def test_finish_ends_a_sequence_and_overshoot_is_dropped() -> None:
    connection = Connection()
    generation = connection.add(request())
    connection.receive(sampled(1, [10, 11]))
    assert await anext(generation) == Gathered(0, [10, 11])

    generation.finish(0, kept_tokens=1)
    connection.receive(sampled(1, [12], STOP))

    _, finish = await sent(connection, 2)
    assert finish.finish == scheduler_pb2.Finish(handle=1, sequence_index=0, kept_tokens=1)
    assert await everything(generation) == []


async def test_refusal_is_the_error_that_it_names() -> None:
    connection = Connection()
    generation = connection.add(request())

    connection.receive(
        refused(1, common_pb2.Error(code=common_pb2.ERROR_CODE_INVALID_ARGUMENT, message="too long", param="prompt"))
    )

    with pytest.raises(InvalidArgument, match="too long") as caught:
        await generation.accepted
    assert caught.value.param == "prompt"
    assert generation.ended


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
    connection = Connection()
    generation = connection.add(request())

    connection.receive(sampled(1, [], reason, error))

    [gathered] = await everything(generation)
    assert gathered.end is not None
    assert (gathered.end.reason, repr(gathered.end.error)) == (reason, expected)


async def test_lost_stream_ends_its_requests_as_unavailable() -> None:
    connection = Connection()
    waiting, running = connection.add(request()), connection.add(request())
    connection.receive(accepted(2))
    connection.receive(sampled(2, [10]))

    connection.lose("gone")

    with pytest.raises(Unavailable, match="gone"):
        await waiting.accepted
    [gathered] = await everything(running)
    assert gathered.tokens == [10]
    assert gathered.end is not None
    assert isinstance(gathered.end.error, Unavailable)


async def test_stream_that_is_far_behind_takes_no_more_requests_but_every_cancel() -> None:
    connection = Connection()
    generations = [connection.add(request()) for _ in range(MAX_WAITING_MESSAGES)]

    with pytest.raises(Overloaded, match="4096 messages wait"):
        connection.add(request())
    generations[0].cancel()

    messages = await sent(connection, MAX_WAITING_MESSAGES + 1)
    assert messages[-1].cancel.handle == 1
