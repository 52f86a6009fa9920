"""inference.GRPCInferenceService."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from jetway.runtime.errors import InvalidArgument, JetwayError, Unavailable, Unimplemented, edge_of
from jetway.runtime.gateway.access import Envelope
from jetway.runtime.gateway.grpc_call import abort, caller_of
from jetway.runtime.gateway.words import is_plain

from . import describe, protobuf
from .edge import Edge
from .errors import NO_LOADING, message_of
from .protobuf import Message
from .stream import InferStream, RequestFailed

CLASS_KEY = "x-jetway-class"  # metadata of a call
SEVERAL = "ModelInfer RPC doesn't support models with decoupled transaction policy"
Context = grpc.aio.ServicerContext[Any, Any]


class KserveService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    """Health needs no API key; everything else does, where there are keys."""

    name = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name

    def __init__(self, edge: Edge, stall_limit_s: float) -> None:
        self._edge = edge
        self._stall_limit_s = stall_limit_s

    def register(self, server: grpc.aio.Server) -> None:
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, server)

    async def ServerLive(self, request: Message, context: Context) -> Message:
        return service_pb2.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Message, context: Context) -> Message:
        return service_pb2.ServerReadyResponse(ready=self._edge.is_ready())

    async def ModelReady(self, request: Message, context: Context) -> Message:
        return service_pb2.ModelReadyResponse(ready=self._edge.is_model_ready(request.name, request.version))

    async def ServerMetadata(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            return ParseDict(describe.server(), service_pb2.ServerMetadataResponse())

    async def ModelMetadata(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            model = self._edge.catalog.find(request.name, request.version)
            return ParseDict(describe.metadata(model), service_pb2.ModelMetadataResponse())

    async def ModelConfig(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            config = ParseDict(self._edge.config(request.name, request.version), model_config_pb2.ModelConfig())
            return service_pb2.ModelConfigResponse(config=config)

    async def ModelStatistics(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            statistics = self._edge.statistics(request.name, request.version)
            return ParseDict({"model_stats": statistics}, service_pb2.ModelStatisticsResponse())

    async def RepositoryIndex(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            if request.repository_name:
                raise Unimplemented("'repository_name' specification is not supported")
            models = self._edge.index(only_ready=request.ready)
            return ParseDict({"models": models}, service_pb2.RepositoryIndexResponse())

    async def RepositoryModelLoad(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            raise Unavailable(NO_LOADING)

    async def RepositoryModelUnload(self, request: Message, context: Context) -> Message:
        async with self._admitted(context):
            raise Unavailable(NO_LOADING)

    async def _not_served(self, request: Message, context: Context) -> Message:
        """Defined, since gRPC logs a traceback for every call of what is not."""
        async with self._admitted(context):
            raise Unimplemented("shared memory, trace and logging are not served here")

    SystemSharedMemoryStatus = SystemSharedMemoryRegister = SystemSharedMemoryUnregister = _not_served
    CudaSharedMemoryStatus = CudaSharedMemoryRegister = CudaSharedMemoryUnregister = _not_served
    TraceSetting = LogSettings = _not_served

    async def ModelInfer(self, request: Message, context: Context) -> Message:
        async with _errors_as_status(context, request.id):
            envelope = self._envelope(request, context)
            with self._edge.generator.refusals():
                asked = protobuf.request_from(request, self._edge.catalog, several=SEVERAL)
            async with self._edge.inference.replies(asked, envelope) as replies:
                return protobuf.response_to(request, await anext(replies))

    async def ModelStreamInfer(self, request_iterator: AsyncIterator[Message], context: Context) -> None:
        """A coroutine that writes by itself: only such a one learns that the client does not read."""
        async with self._admitted(context):
            stream = InferStream(self._edge, context, self._stall_limit_s)
            try:
                await stream.serve(request_iterator, lambda request: self._envelope(request, context))
            except RequestFailed as failure:
                await _abort(context, failure.error, failure.request_id)

    @asynccontextmanager
    async def _admitted(self, context: Context) -> AsyncIterator[None]:
        """For who may call. Errors become statuses."""
        async with _errors_as_status(context, ""):
            with self._edge.generator.refusals():
                caller_of(context, self._edge.access)
            yield

    def _envelope(self, request: Message, context: Context) -> Envelope:
        """Raises Unauthenticated and InvalidArgument."""
        service_class = dict(context.invocation_metadata() or ()).get(CLASS_KEY)
        if isinstance(service_class, bytes):
            raise InvalidArgument(f"{CLASS_KEY} must be text", param=CLASS_KEY)
        with self._edge.generator.refusals():
            return Envelope(
                request_id=request.id if is_plain(request.id) else f"infer-{uuid.uuid4().hex}",
                caller=caller_of(context, self._edge.access),
                placer=self._edge.access.placer,
                service_class=service_class,
                class_param=CLASS_KEY,
            )


@asynccontextmanager
async def _errors_as_status(context: Context, request_id: str) -> AsyncIterator[None]:
    try:
        yield
    except JetwayError as error:
        await _abort(context, error, request_id)


async def _abort(context: Context, error: JetwayError, request_id: str) -> None:
    """End the call with the status and the message that Triton has for the error."""
    await abort(context, edge_of(error).kserve_grpc, message_of(error, request_id), error)
