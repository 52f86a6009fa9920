"""Random and mutated words of a gateway to the scheduler: its own session ends by name, or goes on; others do."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.random_messages import messages
from tests.support.stack import ENGINE, Stack, stack
from tests.support.tokenizers import byte_level, write_engine

NUM_SESSIONS = 150
HANDLE = 12345  # of a request beside the nonsense, whose end shows that the scheduler goes on
ADD = scheduler_pb2.Add(
    handle=3,
    request_id="a",
    prompt=[5, 6, 7],
    max_tokens=3,
    n=2,
    sampling=common_pb2.SamplingParams(temperature=1, seed=2),
)
RECOVERED = scheduler_pb2.Add(
    handle=2,
    request_id="b",
    prompt=[5, 6, 7],
    max_tokens=3,
    n=2,
    age_ms=10,
    generated=[scheduler_pb2.Generated(sequence_index=1, tokens=[8]), scheduler_pb2.Generated()],
)
FIRST = scheduler_pb2.SessionRequest(
    add=scheduler_pb2.Add(handle=1, request_id="first", prompt=[1, 2, 3], max_tokens=30, n=2)
)
GOOD = {
    "add": scheduler_pb2.SessionRequest(add=ADD),
    "recovered": scheduler_pb2.SessionRequest(add=RECOVERED),
    "cancel": scheduler_pb2.SessionRequest(cancel=scheduler_pb2.Cancel(handle=1)),
    "finish": scheduler_pb2.SessionRequest(finish=scheduler_pb2.Finish(handle=1, sequence_index=1, kept_tokens=1)),
}


def beside() -> bytes:
    add = scheduler_pb2.Add(handle=HANDLE, request_id="beside", prompt=[5, 6], max_tokens=3)
    return scheduler_pb2.SessionRequest(add=add).SerializeToString()


async def session(running: Stack, said: list[bytes]) -> str:
    """How a session ends in which all of it is said: by itself, or once the request beside it has its end."""
    async with grpc.aio.insecure_channel(running.address) as channel:
        method: Any = channel.stream_stream("/jetway.v1.Scheduler/Session")
        call = method(timeout=10.0)
        try:
            for message in (beside(), *said):
                await call.write(message)
            while (frame := await call.read()) is not grpc.aio.EOF:
                if any(end.handle == HANDLE for end in scheduler_pb2.SessionFrame.FromString(frame).ends):
                    await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it ended while something was said
            pass
        return str((await call.code()).name)


@pytest.mark.parametrize("action", GOOD)
async def test_nonsense_ends_its_own_session_by_name_or_nothing(tmp_path: Path, action: str) -> None:
    rng = random.Random(action)
    outcomes: Counter[str] = Counter()
    async with stack(write_engine(tmp_path, byte_level())) as running:
        for message in messages(rng, GOOD[action], NUM_SESSIONS):
            async with asyncio.timeout(15.0):
                outcomes[await session(running, [FIRST.SerializeToString(), message])] += 1
        assert set(outcomes) == {"OK", "INVALID_ARGUMENT"}, outcomes
        assert (await running.clients[""].generate("a", max_tokens=2, ignore_eos=True)).usage.completion_tokens == 2
        stats = await running.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    free = (stats.num_free_device_blocks, stats.num_free_host_blocks)
    assert free == (ENGINE.num_device_blocks, ENGINE.num_host_blocks)
