"""Messages that are no protobuf: every service answers INVALID_ARGUMENT, where gRPC by itself says UNKNOWN or INTERNAL.

gRPC decodes before it calls a method, and no interceptor hears of a failure. So these interceptors take its decoder out
and decode in front of the method.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # quoted: only its stub is generic
Method = Callable[[Any, Any], Any]
Decode = Callable[[bytes], Any]


class MalformedMessage(Exception):
    """Raised to whoever reads a stream of requests."""


class AsyncDecoding(grpc.aio.ServerInterceptor):
    """For servers of grpc.aio. A method that lets MalformedMessage through ends as INVALID_ARGUMENT too."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Awaitable[Handler | None]"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = await continuation(handler_call_details)
        return handler and _with(handler, _async_method(_method_of(handler), _async_take(handler)))


class Decoding(grpc.ServerInterceptor):
    """For servers of threads. A method that reads a stream translates MalformedMessage itself."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Handler | None"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = continuation(handler_call_details)
        return handler and _with(handler, _sync_method(_method_of(handler), handler))


def _method_of(handler: Handler) -> Method:
    method: Method | None = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    assert method is not None, "a handler has the one method of its kind"
    return method


def _with(handler: Handler, method: Method) -> Handler:
    """The handler with another method, which takes bytes."""
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(method, request_deserializer=None, response_serializer=handler.response_serializer)


def _decode(decode: Decode, message: bytes) -> Any:
    """Raises MalformedMessage."""
    try:
        return decode(message)
    except DecodeError as error:
        raise MalformedMessage(str(error)) from error


def _async_take(handler: Handler) -> Callable[[Any], Any]:
    """Bytes, or a stream of them, to what the method takes."""
    decode = handler.request_deserializer
    assert decode is not None, "the generated code gives every method its decoder"

    async def each(messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for message in messages:
            yield _decode(decode, message)

    return each if handler.request_streaming else lambda message: _decode(decode, message)


def _async_method(method: Method, take: Callable[[Any], Any]) -> Method:
    async def respond(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        async with _translated(context):
            return await method(take(request), context)

    async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        async with _translated(context), aclosing(method(take(request), context)) as responses:
            async for response in responses:
                yield response

    return stream if inspect.isasyncgenfunction(method) else respond


@asynccontextmanager
async def _translated(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    try:
        yield
    except (MalformedMessage, ExceptionGroup) as error:
        found: BaseException | None = error
        while isinstance(found, BaseExceptionGroup):  # of a method that reads its stream in a task group
            group = found.subgroup(MalformedMessage)
            found = None if group is None else group.exceptions[0]
        if found is None:
            raise
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(found))


def _sync_method(method: Method, handler: Handler) -> Method:
    decode = handler.request_deserializer
    assert decode is not None, "the generated code gives every method its decoder"

    def each(messages: Iterator[bytes]) -> Iterator[Any]:
        for message in messages:
            yield _decode(decode, message)

    @functools.wraps(method)  # with its marks: gRPC asks whether it holds a thread
    def respond(request: Any, context: grpc.ServicerContext, *send: Any) -> Any:
        if handler.request_streaming:
            return method(each(request), context)
        try:
            message = _decode(decode, request)
        except MalformedMessage as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return method(message, context, *send)

    return respond
