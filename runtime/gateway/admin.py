"""jetway.v1.Admin: how this gateway and its scheduler stand."""

import time
from contextlib import suppress
from importlib.metadata import version

from jetway.runtime.errors import Unavailable
from jetway.v1 import admin_pb2, admin_pb2_grpc

from .access import Access, check_admin
from .grpc_call import Context, caller_of, errors_as_status
from .metrics.instruments import Metrics
from .session import SchedulerSession


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """For whoever `access` lets administer."""

    def __init__(self, session: SchedulerSession, metrics: Metrics, model_name: str, access: Access) -> None:
        self._access = access
        self._session = session
        self._metrics = metrics
        self._model_name = model_name
        self._started_s = time.monotonic()

    async def Status(self, request: admin_pb2.StatusRequest, context: Context) -> admin_pb2.StatusResponse:
        async with errors_as_status(context):
            with self._metrics.refusals():
                check_admin(caller_of(context, self._access))
            return await self._status()

    async def _status(self) -> admin_pb2.StatusResponse:
        response = admin_pb2.StatusResponse(
            version=version("jetway-llm"),
            model=self._model_name,
            uptime_s=time.monotonic() - self._started_s,
            num_live_requests=int(self._metrics.registry.get_sample_value("jetway_live_requests") or 0),
        )
        with suppress(Unavailable):  # the field stays absent
            response.scheduler.CopyFrom(await self._session.stats())
        return response
