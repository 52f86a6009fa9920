"""A real gRPC server of `jetway.v1.Scheduler.Session` whose words a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from jetway.v1 import common_pb2, scheduler_pb2, scheduler_pb2_grpc

STOP = common_pb2.FINISH_REASON_STOP
LENGTH = common_pb2.FINISH_REASON_LENGTH
ENGINE = common_pb2.EngineDescription(
    engine_id="00" * 32, kind="simulated", version="0", block_size=32, num_device_blocks=64, block_bytes=1,
    max_num_seqs=4, max_num_batched_tokens=256, max_seq_len=512, vocab_size=512, capabilities=["logprobs"],
)  # fmt: skip

Script = Callable[[scheduler_pb2.Add], Iterable[scheduler_pb2.SessionFrame]]


def accepted(handle: int) -> scheduler_pb2.SessionFrame:
    return scheduler_pb2.SessionFrame(accepted=[handle])


def refused(handle: int, error: common_pb2.Error) -> scheduler_pb2.SessionFrame:
    return scheduler_pb2.SessionFrame(refused=[scheduler_pb2.Refusal(handle=handle, error=error)])


def sampled(
    handle: int,
    tokens: Sequence[int],
    reason: common_pb2.FinishReason.ValueType | None = None,
    error: common_pb2.Error | None = None,
    index: int = 0,
) -> scheduler_pb2.SessionFrame:
    """Tokens of one of a request's sequences and, with a reason, its end."""
    frame = scheduler_pb2.SessionFrame(
        token_handles=[handle] * len(tokens), token_indices=[index] * len(tokens), tokens=tokens
    )
    if reason is not None:
        frame.ends.append(scheduler_pb2.SequenceEnd(handle=handle, sequence_index=index, reason=reason, error=error))
    return frame


def scored(
    frame: scheduler_pb2.SessionFrame, logprobs: Sequence[common_pb2.TokenLogprobs]
) -> scheduler_pb2.SessionFrame:
    """The frame with log-probabilities of its tokens."""
    frame.logprob_rows.extend(range(len(frame.tokens)))
    frame.logprobs.extend(logprobs)
    return frame


def cached(frame: scheduler_pb2.SessionFrame, num_tokens: int) -> scheduler_pb2.SessionFrame:
    """The frame whose ends found so many prompt tokens cached."""
    for end in frame.ends:
        end.num_cached_tokens = num_tokens
    return frame


def queued(frame: scheduler_pb2.SessionFrame, queued_s: float) -> scheduler_pb2.SessionFrame:
    """The frame whose ends waited so long for their start."""
    for end in frame.ends:
        end.queued_s = queued_s
    return frame


def silence(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
    """The test speaks itself."""
    return []


def answering(*frames: list[int], reason: common_pb2.FinishReason.ValueType = LENGTH) -> Script:
    """Accept everything; one frame for each list of tokens, the end in the last."""

    def script(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
        *first, last = frames
        return [
            accepted(add.handle),
            *(sampled(add.handle, tokens) for tokens in first),
            sampled(add.handle, last, reason),
        ]

    return script


def refusing(code: common_pb2.ErrorCode.ValueType, message: str, param: str | None = None) -> Script:
    return lambda add: [refused(add.handle, common_pb2.Error(code=code, message=message, param=param))]


class FakeScheduler(scheduler_pb2_grpc.SchedulerServicer):
    """Plays `script` for each Add; `send` says more; a Finish ends its sequence at once, as the real scheduler's does.

    What gateways say waits in `adds`, `cancels` and `finishes`. `stats` is what Stats says; None: it fails.
    """

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.address = address
        self.script: Script = silence
        self.stats: scheduler_pb2.StatsResponse | None = scheduler_pb2.StatsResponse(engine=ENGINE)
        self.num_cached_tokens = 0  # of sequences that are told to finish
        self.adds: asyncio.Queue[scheduler_pb2.Add] = asyncio.Queue()
        self.cancels: asyncio.Queue[int] = asyncio.Queue()
        self.finishes: asyncio.Queue[scheduler_pb2.Finish] = asyncio.Queue()
        self._frames: asyncio.Queue[scheduler_pb2.SessionFrame | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        scheduler_pb2_grpc.add_SchedulerServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._server.stop(0)

    def send(self, frame: scheduler_pb2.SessionFrame) -> None:
        self._frames.put_nowait(frame)

    def end_session(self) -> None:
        self._frames.put_nowait(None)

    async def Session(
        self, request_iterator: AsyncIterator[scheduler_pb2.SessionRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[scheduler_pb2.SessionFrame]:
        self._frames = asyncio.Queue()
        reader = asyncio.create_task(self._read(request_iterator))
        try:
            yield scheduler_pb2.SessionFrame(engine=ENGINE, is_ready=True)
            while (frame := await self._frames.get()) is not None:
                yield frame
        finally:
            reader.cancel()

    async def Stats(
        self, request: scheduler_pb2.StatsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> scheduler_pb2.StatsResponse:
        if self.stats is None:
            await context.abort(grpc.StatusCode.INTERNAL, "no figures")
        assert self.stats is not None, "abort raises"
        return self.stats

    async def _read(self, requests: AsyncIterator[scheduler_pb2.SessionRequest]) -> None:
        async for message in requests:
            match message.WhichOneof("action"):
                case "add":
                    self.adds.put_nowait(message.add)
                    for frame in self.script(message.add):
                        self.send(frame)
                case "cancel":
                    self.cancels.put_nowait(message.cancel.handle)
                case "finish":
                    self.finishes.put_nowait(message.finish)
                    end = sampled(message.finish.handle, [], STOP, index=message.finish.sequence_index)
                    self.send(cached(end, self.num_cached_tokens))
