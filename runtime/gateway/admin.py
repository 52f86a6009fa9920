"""jetway.v1.Admin: how this gateway and its scheduler stand, and how all of it ends."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from jetway.runtime.errors import PermissionDenied, Unavailable
from jetway.v1 import admin_pb2, admin_pb2_grpc

from .access import Access, check_admin
from .faults import faults_as_errors
from .grpc_call import Context, caller_of, errors_as_status, is_near
from .metrics.instruments import Metrics
from .session import SchedulerSession
from .surroundings import Surroundings


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """For whoever `access` lets administer."""

    def __init__(
        self,
        session: SchedulerSession,
        metrics: Metrics,
        model_name: str,
        access: Access,
        surroundings: Surroundings,
    ) -> None:
        self._access = access
        self._surroundings = surroundings
        self._session = session
        self._metrics = metrics
        self._model_name = model_name
        self._started_s = time.monotonic()

    async def Status(self, request: admin_pb2.StatusRequest, context: Context) -> admin_pb2.StatusResponse:
        async with self._administering(context):
            return await self._status()

    async def Drain(self, request: admin_pb2.DrainRequest, context: Context) -> admin_pb2.DrainResponse:
        async with self._administering(context):
            if self._access.keys.is_empty and not is_near(context):
                raise PermissionDenied("without API keys only the server's own machine may drain it")
            self._surroundings.drain()
            return admin_pb2.DrainResponse()

    @asynccontextmanager
    async def _administering(self, context: Context) -> AsyncIterator[None]:
        async with errors_as_status(context):
            with faults_as_errors("admin"), self._metrics.refusals():
                check_admin(caller_of(context, self._access))
                yield

    async def _status(self) -> admin_pb2.StatusResponse:
        response = admin_pb2.StatusResponse(
            version=version("jetway-llm"),
            model=self._model_name,
            uptime_s=time.monotonic() - self._started_s,
            num_live_requests=int(self._metrics.registry.get_sample_value("jetway_live_requests") or 0),
        )
        now_s = time.monotonic()
        for life in self._surroundings.lives():
            response.roles.add(
                role=life.role,
                pid=life.pids[0],
                rank_pids=life.pids if len(life.pids) > 1 else (),
                epoch=life.epoch,
                num_restarts=life.num_restarts,
                uptime_s=now_s - life.started_s,
            )
        with suppress(Unavailable):  # the field stays absent
            response.scheduler.CopyFrom(await self._session.stats())
        return response
