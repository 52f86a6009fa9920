"""Sessions as a gateway sees them: a real gRPC stream to a real scheduler, stepped against the reference executor."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Never, cast

import grpc
import pytest

from jetway.runtime import outbox
from jetway.runtime.service import SchedulerService
from jetway.scheduler.scheduler import Scheduler
from jetway.v1 import common_pb2, scheduler_pb2, scheduler_pb2_grpc
from tests.support.scheduling import (
    Driver,
    ReferenceExecutor,
    expected_tokens,
    make_request,
    make_scheduler,
)
from tests.support.step_service import SteppedExecutor, serve_scheduler, serve_service

Call = grpc.aio.StreamStreamCall[scheduler_pb2.SessionRequest, scheduler_pb2.SessionFrame]


@pytest.fixture
def scheduler() -> Scheduler:
    return make_scheduler()


@pytest.fixture
async def executor() -> SteppedExecutor:
    return SteppedExecutor(ReferenceExecutor())


@pytest.fixture
async def address(scheduler: Scheduler, executor: SteppedExecutor, tmp_path: Path) -> AsyncIterator[str]:
    async with serve_scheduler(scheduler, executor, tmp_path / "s.sock") as address:
        yield address


class Gateway:
    """One session; gathers what its frames say."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        stub: scheduler_pb2_grpc.SchedulerAsyncStub = scheduler_pb2_grpc.SchedulerStub(self.channel)
        self.stub = stub
        self.call: Call = stub.Session()
        self.accepted: list[int] = []
        self.refused: dict[int, common_pb2.Error] = {}
        self.tokens: dict[tuple[int, int], list[int]] = {}
        self.ends: dict[tuple[int, int], scheduler_pb2.SequenceEnd] = {}

    async def send(self, **action: object) -> None:
        await self.call.write(scheduler_pb2.SessionRequest(**action))  # type: ignore[arg-type]  # one of three fields

    async def add(self, handle: int, request_id: str, *, max_tokens: int = 4, n: int = 1, prompt_len: int = 4) -> None:
        prompt = make_request(request_id, prompt_len=prompt_len).prompt
        await self.send(
            add=scheduler_pb2.Add(handle=handle, request_id=request_id, prompt=prompt, max_tokens=max_tokens, n=n)
        )

    async def read(self) -> scheduler_pb2.SessionFrame:
        frame = await self.call.read()
        assert isinstance(frame, scheduler_pb2.SessionFrame)
        self.accepted += frame.accepted
        self.refused |= {refusal.handle: refusal.error for refusal in frame.refused}
        for handle, index, token in zip(frame.token_handles, frame.token_indices, frame.tokens, strict=True):
            self.tokens.setdefault((handle, index), []).append(token)
        self.ends |= {(end.handle, end.sequence_index): end for end in frame.ends}
        return frame

    async def read_until_ended(self, *keys: tuple[int, int]) -> None:
        while not set(keys) <= set(self.ends):
            await self.read()

    async def stats(self) -> scheduler_pb2.StatsResponse:
        return await self.stub.Stats(scheduler_pb2.StatsRequest())


@pytest.fixture
async def gateway(address: str) -> AsyncIterator[Gateway]:
    gateway = Gateway(address)
    yield gateway
    await gateway.channel.close()


async def test_the_first_frame_describes_the_engine(gateway: Gateway) -> None:
    frame = await gateway.read()
    assert (frame.engine.engine_id, frame.engine.block_size, frame.engine.vocab_size) == ("test", 4, 1000)


async def test_a_session_says_first_and_at_each_change_whether_it_is_ready(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    service = SchedulerService(scheduler, asyncio.Event(), lambda: 0.0)
    service.tell_ready(ready=True)
    async with serve_service(service, tmp_path / "s.sock") as address:
        gateway = Gateway(address)
        assert (await gateway.read()).is_ready
        service.tell_ready(ready=True)
        service.tell_ready(ready=False)
        frame = await gateway.read()
        assert (frame.HasField("is_ready"), frame.is_ready) == (True, False)
        await gateway.channel.close()


async def test_requests_of_one_session_stream_side_by_side(gateway: Gateway) -> None:
    await gateway.add(1, "a", max_tokens=5)
    await gateway.add(2, "b", max_tokens=3, n=2)
    await gateway.read_until_ended((1, 0), (2, 0), (2, 1))
    a, b = make_request("a", max_tokens=5), make_request("b", max_tokens=3)
    assert gateway.tokens == {
        (1, 0): expected_tokens(a),
        (2, 0): expected_tokens(b, 0),
        (2, 1): expected_tokens(b, 1),
    }
    assert gateway.accepted == [1, 2]
    assert {end.reason for end in gateway.ends.values()} == {common_pb2.FINISH_REASON_LENGTH}
    assert [end.num_tokens for _, end in sorted(gateway.ends.items())] == [5, 3, 3]
    assert all(end.HasField("queued_s") for end in gateway.ends.values())


async def test_equal_public_ids_of_two_gateways_do_not_meet(gateway: Gateway, address: str) -> None:
    other = Gateway(address)
    for each in (gateway, other):
        await each.add(1, "same", max_tokens=3)
    for each in (gateway, other):
        await each.read_until_ended((1, 0))
        assert each.tokens[1, 0] == expected_tokens(make_request("same", max_tokens=3))
    await other.channel.close()


async def test_what_cannot_run_is_refused_with_code_message_and_field(gateway: Gateway) -> None:
    await gateway.add(1, "a", max_tokens=5000)
    await gateway.send(add=scheduler_pb2.Add(handle=2, request_id="b"))
    bad = common_pb2.SamplingParams(temperature=-1.0)
    await gateway.send(add=scheduler_pb2.Add(handle=3, request_id="c", prompt=[1], sampling=bad))
    bad = common_pb2.SamplingParams(logit_bias_tokens=[1, 2], logit_bias_values=[1.0])
    await gateway.send(add=scheduler_pb2.Add(handle=4, request_id="d", prompt=[1], sampling=bad))
    while len(gateway.refused) < 4:
        await gateway.read()
    assert {handle: error.param for handle, error in gateway.refused.items()} == {
        1: "max_tokens",
        2: "prompt",
        3: "temperature",
        4: "logit_bias",
    }
    assert {error.code for error in gateway.refused.values()} == {common_pb2.ERROR_CODE_INVALID_ARGUMENT}
    assert "max_tokens (5000) exceed the engine's max_seq_len of 400 tokens" in gateway.refused[1].message
    assert gateway.accepted == []


async def test_a_gateway_that_reuses_a_live_handle_loses_its_own_session_only(
    gateway: Gateway, address: str, executor: SteppedExecutor
) -> None:
    executor.hold_after(1)
    wrong = Gateway(address)
    await wrong.add(1, "a", max_tokens=50)
    await wrong.add(1, "b")
    with pytest.raises(grpc.aio.AioRpcError, match="handle 1 names a request that still lives") as error:
        while True:
            await wrong.read()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    executor.go_on()
    await gateway.add(1, "c")
    await gateway.read_until_ended((1, 0))
    assert gateway.tokens[1, 0] == expected_tokens(make_request("c"))
    await wrong.channel.close()


async def test_a_sequence_that_fails_says_why(gateway: Gateway, executor: SteppedExecutor) -> None:
    executor.reference.fails = frozenset({"a#1.1"})
    await gateway.add(1, "a")
    await gateway.read_until_ended((1, 0))
    end = gateway.ends[1, 0]
    assert end.reason == common_pb2.FINISH_REASON_FAILED
    assert (end.error.code, end.error.message) == (common_pb2.ERROR_CODE_ENGINE_FAILED, "it cannot be computed")


async def test_cancel_frees_the_blocks_while_a_step_is_in_flight(gateway: Gateway, executor: SteppedExecutor) -> None:
    executor.hold_after(3)
    await gateway.add(1, "a", max_tokens=300)
    while len(gateway.tokens.get((1, 0), [])) < 3:
        await gateway.read()
    await gateway.send(cancel=scheduler_pb2.Cancel(handle=1))
    await gateway.read_until_ended((1, 0))
    executor.go_on()
    assert gateway.ends[1, 0].reason == common_pb2.FINISH_REASON_CANCELLED
    stats = await gateway.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_device_blocks) == (0, 0, 100)


async def test_finish_ends_as_stop_with_the_kept_tokens(gateway: Gateway, executor: SteppedExecutor) -> None:
    executor.hold_after(3)
    await gateway.add(1, "a", max_tokens=300)
    while len(gateway.tokens.get((1, 0), [])) < 3:
        await gateway.read()
    await gateway.send(finish=scheduler_pb2.Finish(handle=1, kept_tokens=2))
    await gateway.read_until_ended((1, 0))
    executor.go_on()
    assert (gateway.ends[1, 0].reason, gateway.ends[1, 0].num_tokens) == (common_pb2.FINISH_REASON_STOP, 2)


async def test_a_cancel_that_crosses_the_end_is_ignored(gateway: Gateway) -> None:
    await gateway.add(1, "a")
    await gateway.read_until_ended((1, 0))
    await gateway.send(cancel=scheduler_pb2.Cancel(handle=1))
    await gateway.send(finish=scheduler_pb2.Finish(handle=7))
    await gateway.add(2, "b")
    await gateway.read_until_ended((2, 0))
    assert gateway.ends[2, 0].reason == common_pb2.FINISH_REASON_LENGTH


@pytest.mark.parametrize("how", ["half-close", "cancel"])
async def test_a_session_that_ends_takes_its_requests_along(
    how: str, gateway: Gateway, address: str, executor: SteppedExecutor
) -> None:
    """A gateway that dies leaves nothing behind; the other's requests go on."""
    executor.hold_after(3)
    dying = Gateway(address)
    await dying.add(1, "gone", max_tokens=300)
    await dying.add(2, "gone too", max_tokens=300, n=2)
    while not dying.tokens:
        await dying.read()
    await gateway.add(1, "stays", max_tokens=5)
    if how == "cancel":
        dying.call.cancel()
    else:
        await dying.call.done_writing()
        await dying.read_until_ended((1, 0), (2, 0), (2, 1))
        assert {end.reason for end in dying.ends.values()} == {common_pb2.FINISH_REASON_CANCELLED}
        assert await dying.call.code() is grpc.StatusCode.OK
    executor.go_on()
    await gateway.read_until_ended((1, 0))
    while (await gateway.stats()).num_running:
        await asyncio.sleep(0)
    assert gateway.tokens[1, 0] == expected_tokens(make_request("stays", max_tokens=5))
    assert (await gateway.stats()).num_free_device_blocks == 100
    await dying.channel.close()


class Unread:
    """The gRPC context of a stream that nobody reads: the test asks for frames by hand."""

    async def abort(self, code: grpc.StatusCode, details: str) -> Never:
        raise grpc.aio.AbortError(code, details)


async def test_a_gateway_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gathered for it is bounded: its requests end, their blocks are free, and it takes no more.

    It does not hear of the ends: it goes on with these requests over its next stream.
    """
    asked = asyncio.Event()
    monkeypatch.setattr(outbox, "MAX_GATHERED", 5)
    driver = Driver(make_scheduler())
    service = SchedulerService(driver.scheduler, asyncio.Event(), lambda: 0.0)

    async def requests() -> AsyncIterator[scheduler_pb2.SessionRequest]:
        yield scheduler_pb2.SessionRequest(add=scheduler_pb2.Add(handle=1, request_id="a", prompt=[1], max_tokens=300))
        await asked.wait()
        yield scheduler_pb2.SessionRequest(add=scheduler_pb2.Add(handle=2, request_id="b", prompt=[1], max_tokens=300))
        await asyncio.Event().wait()

    session = service.Session(requests(), cast(Any, Unread()))
    await anext(session)
    await asyncio.sleep(0)
    for _ in range(9):
        driver.step()
        service.publish(driver.log)
        driver.log.clear()
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 100
    asked.set()
    await asyncio.sleep(0.001)
    assert driver.scheduler.stats(0.0).num_waiting == 0
    last = await anext(session)
    assert (len(last.tokens), len(last.ends)) == (5, 0)
    with pytest.raises(grpc.aio.AbortError, match="RESOURCE_EXHAUSTED"):
        await anext(session)
