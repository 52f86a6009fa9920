"""The scheduler's end of the step boundary: one Run session with one executor, over grpc.aio."""

import asyncio
import itertools
from typing import Self

import grpc

from jetway.runtime.errors import Unavailable
from jetway.runtime.wire import CHANNEL_OPTIONS, description_from_proto
from jetway.scheduler.plan import EngineDescription, StepPlan, StepResult
from jetway.v1 import executor_pb2, executor_pb2_grpc

from .wire import EPOCH_KEY, plan_to_proto, result_from_proto

_SESSIONS_OF_A_LIFE = 1 << 20
_ANSWER_S = 1.0  # how long an executor that is there gets to say what it serves
_RETRY_S = 0.05


class ExecutorClient:
    """Carries plans one way and results the other. Raises Unavailable when the executor is lost.

    `address` is a gRPC target ("unix:/run/x.sock", "host:port"); `epoch` orders sessions (executor.proto).
    """

    engine: EngineDescription  # what is served

    def __init__(self, address: str, epoch: int) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub: executor_pb2_grpc.ExecutorAsyncStub = executor_pb2_grpc.ExecutorStub(self._channel)
        self._run = self._stub.Run(metadata=((EPOCH_KEY, str(epoch)),))

    @classmethod
    async def connect(cls, address: str, epoch: int, *, timeout_s: float | None = None) -> Self:
        """Begin a session, and learn what is served; waits until the executor answers."""
        client = cls(address, epoch)
        request = executor_pb2.DescribeRequest()
        try:
            message = await client._stub.Describe(request, wait_for_ready=True, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            await client.close()
            raise client._lost(error.code(), error.details()) from error
        client.engine = description_from_proto(message)
        return client

    async def send(self, plan: StepPlan) -> None:
        """Hand over the next plan; does not wait for its result."""
        try:
            await self._run.write(plan_to_proto(plan))
        except grpc.aio.AioRpcError as error:
            raise self._lost(error.code(), error.details()) from error
        except asyncio.InvalidStateError as error:  # the session ended while no plan was under way
            raise self._lost(await self._run.code(), await self._run.details()) from error

    async def receive(self) -> StepResult:
        """The result of the oldest plan without one."""
        try:
            message = await self._run.read()
        except grpc.aio.AioRpcError as error:
            raise self._lost(error.code(), error.details()) from error
        if not isinstance(message, executor_pb2.StepResult):
            raise Unavailable(f"the executor at {self._address} ended the session")
        return result_from_proto(message)

    async def close(self) -> None:
        """End the session; the executor forgets what is resident."""
        self._run.cancel()
        await self._channel.close()

    def _lost(self, code: grpc.StatusCode, details: str | None) -> Unavailable:
        return Unavailable(f"the executor at {self._address} is lost: {code.name}: {details}")


class Sessions:
    """The sessions of one life of a scheduler, one after the other; each fences those before it, and those of older lives.

    `address` leads to whichever executor is there.
    """

    def __init__(self, address: str, life: int) -> None:
        self._address = address
        self._epochs = itertools.count(life * _SESSIONS_OF_A_LIFE)

    async def next(self) -> ExecutorClient:
        """Wait for an executor, and begin a session with it."""
        while True:
            try:
                return await ExecutorClient.connect(self._address, next(self._epochs), timeout_s=_ANSWER_S)
            except Unavailable:
                await asyncio.sleep(_RETRY_S)
