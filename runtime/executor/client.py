"""The scheduler's end of the step boundary: one Run session with one executor, over grpc.aio."""

import asyncio

import grpc

from jetway.runtime.errors import Unavailable
from jetway.runtime.wire import CHANNEL_OPTIONS, description_from_proto
from jetway.scheduler.plan import EngineDescription, StepPlan, StepResult
from jetway.v1 import executor_pb2, executor_pb2_grpc

from .wire import EPOCH_KEY, plan_to_proto, result_from_proto


class ExecutorClient:
    """Describes the engine, then carries plans one way and results the other. Raises Unavailable when it is lost.

    `address` is a gRPC target ("unix:/run/x.sock", "host:port"); `epoch` orders schedulers (executor.proto).
    """

    def __init__(self, address: str, epoch: int) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        stub: executor_pb2_grpc.ExecutorAsyncStub = executor_pb2_grpc.ExecutorStub(self._channel)
        self._stub = stub
        self._run = stub.Run(metadata=((EPOCH_KEY, str(epoch)),))

    async def describe(self) -> EngineDescription:
        """What the executor serves; waits until it answers."""
        try:
            return description_from_proto(
                await self._stub.Describe(executor_pb2.DescribeRequest(), wait_for_ready=True)
            )
        except grpc.aio.AioRpcError as error:
            raise self._lost(error.code(), error.details()) from error

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
