"""Bytes that are no protobuf, sent to every kind of method of both kinds of server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest as Message

from jetway.runtime.decoding import AsyncDecoding, Decoding, MalformedMessage

NO_PROTOBUF = b"\xff\xff\xff"
KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]


class Methods:
    """What each kind of method does: it says back what it is asked."""

    async def unary_unary(self, request: Message, context: object) -> Message:
        return request

    async def unary_stream(self, request: Message, context: object) -> AsyncIterator[Message]:
        yield request

    async def writing(self, request: Message, context: grpc.aio.ServicerContext[Message, Message]) -> None:
        await context.write(request)

    async def stream_unary(self, requests: AsyncIterator[Message], context: object) -> Message:
        return [request async for request in requests][-1]

    async def grouped(self, requests: AsyncIterator[Message], context: object) -> Message:
        async with asyncio.TaskGroup() as tasks:
            answer = tasks.create_task(self.stream_unary(requests, context))
        return answer.result()

    async def stream_stream(self, requests: AsyncIterator[Message], context: object) -> AsyncIterator[Message]:
        async for request in requests:
            yield request


def kind_of(name: str) -> str:
    return {"writing": "unary_stream", "grouped": "stream_unary"}.get(name, name)


def handlers(methods: dict[str, Any]) -> grpc.GenericRpcHandler:
    """Each method under its name, which begins with its kind."""
    made = {}
    for name, method in methods.items():
        kind = kind_of(name)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        made[name] = make(
            method, request_deserializer=Message.FromString, response_serializer=Message.SerializeToString
        )
    return grpc.method_handlers_generic_handler("test", made)


@asynccontextmanager
async def async_server() -> AsyncIterator[str]:
    server = grpc.aio.server(interceptors=[AsyncDecoding()])
    methods = Methods()
    server.add_generic_rpc_handlers(
        (handlers({name: getattr(methods, name) for name in [*KINDS, "writing", "grouped"]}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def multicallable(channel: Any, name: str) -> Any:
    """The method `name`, to be called with bytes as they are."""
    return getattr(channel, kind_of(name))(f"/test/{name}", response_deserializer=Message.FromString)


async def async_call(channel: grpc.aio.Channel, name: str, *messages: bytes) -> list[Message]:
    """What the method answers to all of the messages, or to the last where it takes one."""
    answer = multicallable(channel, name)(iter(messages) if kind_of(name).startswith("stream") else messages[-1])
    return [await answer] if kind_of(name).endswith("unary") else [each async for each in answer]


@pytest.mark.parametrize("name", [*KINDS, "writing", "grouped"])
async def test_asyncio_servers_refuse_what_is_no_protobuf_and_answer_what_is(name: str) -> None:
    good = Message(service="a").SerializeToString()
    async with async_server() as address, grpc.aio.insecure_channel(address) as channel:
        assert await async_call(channel, name, good) == [Message(service="a")]
        with pytest.raises(grpc.aio.AioRpcError, match="Error parsing message") as caught:
            await async_call(channel, name, good, NO_PROTOBUF)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@contextmanager
def threaded_channel() -> Iterator[grpc.Channel]:
    def echo(request: Message, context: object) -> Message:
        return request

    def last(requests: Iterator[Message], context: grpc.ServicerContext) -> Message:
        try:
            return list(requests)[-1]
        except MalformedMessage as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    server = grpc.server(ThreadPoolExecutor(1), interceptors=[Decoding()])
    server.add_generic_rpc_handlers((handlers({"unary_unary": echo, "stream_unary": last}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()


@pytest.mark.parametrize("name", ["unary_unary", "stream_unary"])
def test_servers_of_threads_refuse_what_is_no_protobuf_and_answer_what_is(name: str) -> None:
    good = Message(service="a").SerializeToString()
    with threaded_channel() as channel:
        method = multicallable(channel, name)
        stream = name.startswith("stream")
        assert method(iter([good]) if stream else good) == Message(service="a")
        with pytest.raises(grpc.RpcError, match="Error parsing message") as caught:
            method(iter([good, NO_PROTOBUF]) if stream else NO_PROTOBUF)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_method_that_nobody_serves_stays_unimplemented() -> None:
    async with async_server() as address, grpc.aio.insecure_channel(address) as channel:
        nothing: Any = channel.unary_unary("/test/nothing")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await nothing(NO_PROTOBUF)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
