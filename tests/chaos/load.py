"""Clients of one server: what they ask, what they get, and how far they have come."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc

from jetway.v1 import admin_pb2, admin_pb2_grpc, common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2
from tests.support.processes import Running

LONGEST = 120  # output tokens
RETRIES = 20


@dataclass(frozen=True)
class Answer:
    """Of one request: the tokens of each choice, and how each ended."""

    tokens: tuple[tuple[int, ...], ...]
    reasons: tuple[int, ...]


@dataclass
class Progress:
    """Tokens that clients have read, over all requests. Whoever waits for some is told."""

    num_tokens: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, num_tokens: int) -> None:
        self.num_tokens += num_tokens
        self._changed.set()

    async def reach(self, num_tokens: int) -> None:
        while self.num_tokens < num_tokens:
            self._changed.clear()
            await self._changed.wait()


def make_requests(seed: int, count: int) -> list[inference_pb2.GenerateRequest]:
    """Prompts of 1 to 80 tokens, some with a shared prefix; greedy and sampled, one choice or several, every class."""
    rng = random.Random(seed)
    prefix = [rng.randrange(256) for _ in range(70)]
    requests = []
    for _ in range(count):
        own = [rng.randrange(256) for _ in range(rng.randint(1, 80))]
        prompt = (prefix + own)[:80] if rng.random() < 0.3 else own
        requests.append(
            inference_pb2.GenerateRequest(
                token_ids=inference_pb2.TokenIds(ids=prompt),
                max_tokens=rng.randint(1, LONGEST),
                n=rng.choice([1, 1, 1, 2, 3]),
                sampling=common_pb2.SamplingParams(temperature=rng.choice([0.0, 1.0]), seed=rng.randrange(1 << 30)),
                service_class=rng.choice(["interactive", "standard", "batch"]),
            )
        )
    return requests


class Clients:
    """Speak to one server over one channel a request."""

    def __init__(self, address: Callable[[], str], progress: Progress) -> None:
        self._address = address
        self._progress = progress

    async def ask(self, request: inference_pb2.GenerateRequest) -> Answer:
        tokens: list[list[int]] = [[] for _ in range(request.n)]
        reasons = [0] * request.n
        async with grpc.aio.insecure_channel(self._address()) as channel:
            async for delta in inference_pb2_grpc.InferenceStub(channel).GenerateStream(request):
                tokens[delta.index] += delta.token_ids
                reasons[delta.index] = delta.finish_reason
                assert not delta.HasField("error"), delta.error.message
                self._progress.add(len(delta.token_ids))
        return Answer(tuple(map(tuple, tokens)), tuple(reasons))

    async def insist(self, request: inference_pb2.GenerateRequest) -> Answer:
        """As `ask`, again where the gateway was lost with it."""
        for _ in range(RETRIES):
            try:
                return await self.ask(request)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                await asyncio.sleep(0.3)
        raise AssertionError("no gateway answers")

    async def ask_all(
        self,
        requests: list[inference_pb2.GenerateRequest],
        ask: Callable[[inference_pb2.GenerateRequest], Awaitable[Answer]] | None = None,
    ) -> list[Answer]:
        return await asyncio.gather(*map(ask or self.ask, requests))


async def settled(running: Running) -> scheduler_pb2.StatsResponse:
    """The figures once nothing runs or waits any more."""
    async with grpc.aio.insecure_channel(grpc_address(running)) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        while True:
            status = await stub.Status(admin_pb2.StatusRequest())
            stats = status.scheduler
            if status.HasField("scheduler") and not stats.num_running + stats.num_waiting + status.num_live_requests:
                return stats
            await asyncio.sleep(0.01)


def grpc_address(running: Running) -> str:
    """Of the newest gateway."""
    return running.facts("grpc")[-1]
