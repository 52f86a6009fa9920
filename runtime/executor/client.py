"""The scheduler's end of the step boundary: one Run session with one executor, over grpc.aio."""

import asyncio
import itertools
from typing import Self

import grpc

from jetway.runtime.errors import Fenced, JetwayError, Unavailable
from jetway.runtime.wire import CHANNEL_OPTIONS, description_from_proto
from jetway.scheduler.plan import EngineDescription, StepPlan, StepResult
from jetway.v1 import common_pb2, executor_pb2, executor_pb2_grpc

from .wire import EPOCH_KEY, plan_to_proto, result_from_proto

_SESSIONS_OF_A_LIFE = 1 << 20
_ANSWER_S = 1.0  # how long an executor that is there gets to say what it serves
_RETRY_S = 0.05
_FENCED = {grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION}

Run = grpc.aio.StreamStreamCall[executor_pb2.StepPlan, executor_pb2.StepResult]


class ExecutorClient:
    """Carries plans one way and results the other. Raises Unavailable when the executor is lost, Fenced when a newer
    scheduler has it.

    `address` is a gRPC target ("unix:/run/x.sock", "host:port"); `epoch` orders sessions (executor.proto).
    """

    def __init__(self, address: str, channel: grpc.aio.Channel, engine: EngineDescription, epoch: int) -> None:
        self._address = address
        self._channel = channel
        stub: executor_pb2_grpc.ExecutorAsyncStub = executor_pb2_grpc.ExecutorStub(channel)
        self._run: Run = stub.Run(metadata=((EPOCH_KEY, str(epoch)),))
        self.engine = engine

    @classmethod
    async def connect(cls, address: str, epoch: int, *, timeout_s: float | None = None) -> Self:
        """Learn what the executor serves, and begin a session; waits until it answers."""
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        try:
            engine = description_from_proto(await _describe(channel, timeout_s))
        except grpc.aio.AioRpcError as error:
            await channel.close()
            raise _lost(address, error.code(), error.details()) from error
        except BaseException:
            await channel.close()
            raise
        return cls(address, channel, engine, epoch)

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

    async def ended(self) -> JetwayError:
        """Why the session is over, once it is."""
        return self._lost(await self._run.code(), await self._run.details())

    async def close(self) -> None:
        """End the session; the executor forgets what is resident."""
        self._run.cancel()
        await self._channel.close()

    def _lost(self, code: grpc.StatusCode, details: str | None) -> JetwayError:
        return _lost(self._address, code, details)


class Executors:
    """The executors at `address`, one after the other, for one life of a scheduler.

    Each session fences those before it, and those of earlier lives.
    """

    def __init__(self, address: str, life: int) -> None:
        self._address = address
        self._epochs = itertools.count(life * _SESSIONS_OF_A_LIFE)

    async def connect(self) -> ExecutorClient:
        """Wait for an executor, and begin a session with it."""
        while True:
            try:
                return await ExecutorClient.connect(self._address, next(self._epochs), timeout_s=_ANSWER_S)
            except Unavailable:
                await asyncio.sleep(_RETRY_S)


async def _describe(channel: grpc.aio.Channel, timeout_s: float | None) -> common_pb2.EngineDescription:
    stub: executor_pb2_grpc.ExecutorAsyncStub = executor_pb2_grpc.ExecutorStub(channel)
    return await stub.Describe(executor_pb2.DescribeRequest(), wait_for_ready=True, timeout=timeout_s)


def _lost(address: str, code: grpc.StatusCode, details: str | None) -> JetwayError:
    kind = Fenced if code in _FENCED else Unavailable
    return kind(f"the executor at {address} is lost: {code.name}: {details}")
