"""ModelStreamInfer: many requests on one stream, each with its own replies, errors and end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from jetway.runtime.errors import Cancelled, JetwayError, Overloaded
from jetway.runtime.gateway.access import Envelope
from jetway.runtime.gateway.stall import StallLimit

from .edge import Edge
from .protobuf import Message, request_from, stream_error_to, stream_response_to

STATUS_KEY = "triton_grpc_error"  # metadata; "true": an error ends the stream with a status
MAX_REQUESTS = 1024  # that run on one stream


class RequestFailed(Exception):
    """A request ends its stream with this error."""

    def __init__(self, error: JetwayError, request_id: str) -> None:
        super().__init__(error.message)
        self.error = error
        self.request_id = request_id


class InferStream:
    """Runs the requests of one stream. A client that reads nothing for `stall_limit_s` loses all of them."""

    def __init__(self, edge: Edge, context: grpc.aio.ServicerContext[Any, Any], stall_limit_s: float) -> None:
        self._edge = edge
        self._context = context
        self._stall_limit_s = stall_limit_s
        self._errors_end_it = dict(context.invocation_metadata() or ()).get(STATUS_KEY) == "true"
        self._writing = asyncio.Lock()
        self._num_running = 0

    async def serve(self, requests: AsyncIterator[Message], envelope_of: Callable[[Message], Envelope]) -> None:
        """Return once the client has said all and every request has ended. Raises RequestFailed and Cancelled."""
        try:
            async with StallLimit(self._stall_limit_s) as self._stall, asyncio.TaskGroup() as running:
                async for request in requests:
                    self._num_running += 1
                    running.create_task(self._run(request, envelope_of))
        except* RequestFailed as failures:
            raise _first(failures) from None
        except* TimeoutError:
            raise Cancelled(f"the client read nothing for {self._stall_limit_s} s, which is the limit") from None

    async def _run(self, request: Message, envelope_of: Callable[[Message], Envelope]) -> None:
        try:
            envelope = envelope_of(request)
            with self._edge.generator.refusals():
                if self._num_running > MAX_REQUESTS:
                    raise Overloaded(f"{MAX_REQUESTS} requests run on this stream, which is the limit")
                asked = request_from(request, self._edge.catalog, several=None)
            async with self._edge.inference.replies(asked, envelope) as replies:
                async for reply in replies:
                    await self._write(stream_response_to(request, reply))
        except JetwayError as error:
            if self._errors_end_it:
                raise RequestFailed(error, request.id) from error
            await self._write(stream_error_to(request, error))
        finally:
            self._num_running -= 1

    async def _write(self, response: Message) -> None:
        async with self._writing:
            await self._stall.wait(self._context.write(response))


def _first(failures: BaseExceptionGroup[RequestFailed]) -> RequestFailed:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
