"""A scheduler service on a real socket, stepped against the reference executor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from jetway.runtime.errors import JetwayError, Unavailable
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.runtime.service import SchedulerService
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.scheduler import Scheduler
from jetway.v1 import scheduler_pb2_grpc
from tests.support.scheduling import ReferenceExecutor


class SteppedExecutor:
    """The Executor protocol over a ReferenceExecutor. A result takes a permit; `hold_after` leaves only so many."""

    def __init__(self, reference: ReferenceExecutor) -> None:
        self.reference = reference
        self.lost = False
        self.gone = asyncio.Event()  # set: the session has ended while nothing was under way
        self.num_sent = 0
        self.num_received = 0
        self.asked = asyncio.Event()  # for a result
        self._permits = asyncio.Semaphore(1 << 30)
        self._results: asyncio.Queue[StepResult] = asyncio.Queue()

    def hold_after(self, num_steps: int) -> None:
        self._permits = asyncio.Semaphore(num_steps)

    async def step(self) -> None:
        """Let one result through, if there is one."""
        num_received = self.num_received
        if self.num_sent > num_received:
            self._permits.release()
            while self.num_received == num_received:
                await asyncio.sleep(0)

    def go_on(self) -> None:
        for _ in range(1000):
            self._permits.release()

    async def ended(self) -> JetwayError:
        await self.gone.wait()
        return Unavailable("the executor is lost")

    async def send(self, plan: StepPlan) -> None:
        if self.lost:
            raise Unavailable("the executor is lost")
        self.num_sent += 1
        self._results.put_nowait(self.reference.run(plan))

    async def receive(self) -> StepResult:
        self.asked.set()
        await asyncio.sleep(0)  # a real executor always lets others run
        await self._permits.acquire()
        self.num_received += 1
        return await self._results.get()


@contextlib.asynccontextmanager
async def serve_scheduler(
    scheduler: Scheduler, executor: SteppedExecutor, socket: Path, *, depth: int = 0
) -> AsyncIterator[str]:
    """Serve `scheduler` on a unix socket, its loop running; yields the gRPC target."""
    work = asyncio.Event()
    service = SchedulerService(scheduler, work, lambda: 0.0)
    loop = StepLoop(scheduler, service.publish, work, lambda: 0.0, FixedOverlap(depth))
    async with serve_service(service, socket) as address:
        stepping = asyncio.create_task(loop.run(executor))
        try:
            yield address
        finally:
            stepping.cancel()
            with contextlib.suppress(asyncio.CancelledError, Unavailable):
                await stepping


@contextlib.asynccontextmanager
async def serve_service(service: SchedulerService, socket: Path) -> AsyncIterator[str]:
    """Serve it on a unix socket, its scheduler at rest; yields the gRPC target."""
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(service, server)
    address = f"unix:{socket}"
    server.add_insecure_port(address)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)
