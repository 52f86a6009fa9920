"""Gateway to clients, beside bare servers: 256 streams over SSE and over gRPC. Used by boundary.py.

The tokens come from a scheduler that only talks: its frames are made before. A bare server writes the same chunk once a
token: raw ASGI on uvicorn with httptools and uvloop, and a grpc.aio stream. Clients count bytes, or messages.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import uvicorn
import uvloop

from jetway.runtime.config import GatewayConfig
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.surroundings import Alone
from jetway.runtime.outbox import Outbox
from jetway.scheduler.events import FinishReason, SequenceFinished, TokenSampled
from jetway.scheduler.request import SequenceId
from jetway.v1 import common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc

from .remote import process

ENGINE_DIR = Path(__file__).resolve().parent.parent.parent / ".jetway/engines/smollm2-135m-instruct"
NUM_STREAMS = 256
NUM_TOKENS = 1000
STEP_S = 0.001  # faster than any gateway takes them
SEQUENCE = SequenceId("talk", 0)
TOKENS = [1_000 + number for number in range(NUM_TOKENS)]
CHUNK = (
    b'data: {"id":"cmpl-0123456789abcdef0123456789abcdef","created":1700000000,"model":"smollm2-135m-instruct",'
    b'"object":"text_completion","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}\n\n'
)
ENGINE = common_pb2.EngineDescription(
    engine_id="00" * 32, kind="talk", version="0", block_size=32, num_device_blocks=1, block_bytes=1,
    max_num_seqs=NUM_STREAMS, max_num_batched_tokens=8192, max_seq_len=8192, vocab_size=49_152,
)  # fmt: skip


class Talker(scheduler_pb2_grpc.SchedulerServicer):
    """Accepts requests; once NUM_STREAMS are there, gives each NUM_TOKENS tokens as fast as they are taken. What the
    gateway is slow to take gathers, as at the real scheduler.
    """

    async def Session(
        self, request_iterator: AsyncIterator[scheduler_pb2.SessionRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[scheduler_pb2.SessionFrame]:
        outbox = Outbox()
        talking = asyncio.create_task(self._talk(request_iterator, outbox))
        yield scheduler_pb2.SessionFrame(engine=ENGINE)
        while (frame := await outbox.next_frame()) is not None:
            yield frame
        await talking

    async def _talk(self, messages: AsyncIterator[scheduler_pb2.SessionRequest], outbox: Outbox) -> None:
        handles: list[int] = []
        async for message in messages:
            if message.HasField("add"):
                handles.append(message.add.handle)
                outbox.accepted(message.add.handle)
            if len(handles) == NUM_STREAMS:
                for token in TOKENS:
                    for handle in handles:
                        outbox.put(handle, TokenSampled(SEQUENCE, token, None))
                    await asyncio.sleep(STEP_S)
                for handle in handles:
                    outbox.put(handle, SequenceFinished(SEQUENCE, FinishReason.LENGTH, NUM_TOKENS, 0, "", 0.0))
                handles.clear()

    async def Stats(
        self, request: scheduler_pb2.StatsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> scheduler_pb2.StatsResponse:
        return scheduler_pb2.StatsResponse(engine=ENGINE)


def serve_talker(pipe: Connection) -> None:
    asyncio.run(_serve_talker(pipe))


async def _serve_talker(pipe: Connection) -> None:
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(Talker(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(True)
    pipe.send(port)
    await server.wait_for_termination()


@dataclass(frozen=True, slots=True)
class Ports:
    http: int
    grpc: int


def serve_gateway(pipe: Connection, scheduler_address: str) -> None:
    uvloop.run(_serve_gateway(pipe, scheduler_address))


async def _serve_gateway(pipe: Connection, scheduler_address: str) -> None:
    gateway = Gateway(GatewayConfig(port=0, grpc_port=0), ENGINE_DIR, None, Alone(scheduler_address))
    await gateway.start()
    await gateway.ready()
    pipe.send(True)
    pipe.send(Ports(gateway.http_port, gateway.grpc_port))
    await asyncio.Event().wait()


def serve_bare(pipe: Connection) -> None:
    uvloop.run(_serve_bare(pipe))


async def _serve_bare(pipe: Connection) -> None:
    server = grpc.aio.server()
    inference_pb2_grpc.add_InferenceServicer_to_server(BareInference(), server)
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    http = uvicorn.Server(uvicorn.Config(bare_app, port=0, http="httptools", lifespan="off", log_config=None))
    running = asyncio.create_task(http.serve())
    while not http.started:
        await asyncio.sleep(0.01)
    pipe.send(True)
    pipe.send(Ports(http.servers[0].sockets[0].getsockname()[1], grpc_port))
    await running


async def bare_app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in TOKENS:
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class BareInference(inference_pb2_grpc.InferenceServicer):
    async def GenerateStream(  # type: ignore[override]  # a coroutine that writes, as the gateway's
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        for token in TOKENS:
            await context.write(inference_pb2.GenerateDelta(request_id="gen-0", text=" word", token_ids=[token]))

    async def Generate(self, request: Any, context: Any) -> inference_pb2.GenerateResponse:
        raise NotImplementedError

    async def ListModels(self, request: Any, context: Any) -> inference_pb2.ListModelsResponse:
        raise NotImplementedError


class Clock:
    """From the first that any client reads, when every request is accepted, to the last."""

    def __init__(self) -> None:
        self._began = 0.0

    def tick(self) -> None:
        self._began = self._began or time.perf_counter()

    @property
    def rate(self) -> float:
        """Tokens a second over all streams."""
        return NUM_STREAMS * NUM_TOKENS / (time.perf_counter() - self._began)


async def over_sse(ports: Ports) -> tuple[float, int]:
    """Tokens a second over all streams, and how many chunks carried them."""
    body = json.dumps({"model": "smollm2-135m-instruct", "prompt": "hi", "stream": True, "max_tokens": NUM_TOKENS})
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    request = f"{head}\r\nconnection: close\r\n\r\n{body}".encode()

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
        writer.write(request)
        num_chunks = 0
        while data := await reader.read(1 << 16):
            clock.tick()
            num_chunks += data.count(b"data: ")
        writer.close()
        return num_chunks

    clock = Clock()
    chunks = await asyncio.gather(*(one() for _ in range(NUM_STREAMS)))
    return clock.rate, sum(chunks)


async def over_grpc(ports: Ports) -> tuple[float, int]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        request = inference_pb2.GenerateRequest(text="hi", max_tokens=NUM_TOKENS)

        async def one() -> int:
            num_messages = 0
            async for _ in stub.GenerateStream(request):
                clock.tick()
                num_messages += 1
            return num_messages

        clock = Clock()
        messages = await asyncio.gather(*(one() for _ in range(NUM_STREAMS)))
        return clock.rate, sum(messages)


def measure(num_rounds: int) -> None:
    with process(serve_talker) as talker, process(serve_bare) as bare:
        bare_ports: Ports = bare.recv()
        with process(serve_gateway, f"127.0.0.1:{talker.recv()}") as gateway:
            ports: Ports = gateway.recv()
            for name, client in (("SSE", over_sse), ("gRPC", over_grpc)):
                ours, theirs, carried = [], [], []
                for _ in range(num_rounds):
                    rate, num_chunks = uvloop.run(client(ports))
                    ours.append(rate)
                    carried.append(NUM_STREAMS * NUM_TOKENS / num_chunks)
                    theirs.append(uvloop.run(client(bare_ports))[0])
                ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
                print(
                    f"gateway to {NUM_STREAMS} clients over {name}: {median(ours):,.0f} tokens/s, "
                    f"{median(carried):.1f} a chunk; bare server {median(theirs):,.0f}; "
                    f"ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                )
