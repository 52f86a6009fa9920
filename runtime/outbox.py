"""What one gateway has yet to be told: gathered into one frame until the stream can take it."""

import asyncio

from jetway.scheduler.events import FinishReason, SequenceFinished, TokenSampled
from jetway.v1 import common_pb2, scheduler_pb2

from .errors import DeadlineExceeded, EngineFailed, JetwayError
from .wire import error_to_proto, logprobs_to_proto

MAX_GATHERED = 1 << 18  # tokens and answers; a gateway that is this far behind has stopped reading


_ERRORS = {FinishReason.FAILED: EngineFailed, FinishReason.EXPIRED: DeadlineExceeded}


class Outbox:
    """Events of one session in, frames out. Whoever fills it asks `is_full` and then stops."""

    def __init__(self) -> None:
        self._frame = scheduler_pb2.SessionFrame()
        self._ready = asyncio.Event()
        self._closed = False

    @property
    def is_full(self) -> bool:
        frame = self._frame
        return len(frame.tokens) + len(frame.accepted) + len(frame.refused) > MAX_GATHERED

    def accepted(self, handle: int) -> None:
        self._frame.accepted.append(handle)
        self._ready.set()

    def refused(self, handle: int, error: JetwayError) -> None:
        self._frame.refused.append(scheduler_pb2.Refusal(handle=handle, error=error_to_proto(error)))
        self._ready.set()

    def ready(self, *, ready: bool) -> None:
        self._frame.is_ready = ready
        self._ready.set()

    def put(self, handle: int, event: TokenSampled | SequenceFinished) -> None:
        if self._closed:
            return
        if isinstance(event, TokenSampled):
            self._token(handle, event)
        else:
            self._ended(handle, event)
        self._ready.set()

    def _token(self, handle: int, event: TokenSampled) -> None:
        frame = self._frame
        if event.logprobs is not None:
            frame.logprob_rows.append(len(frame.tokens))
            frame.logprobs.append(logprobs_to_proto(event.logprobs))
        frame.token_handles.append(handle)
        frame.token_indices.append(event.sequence_id.index)
        frame.tokens.append(event.token)

    def _ended(self, handle: int, event: SequenceFinished) -> None:
        end = scheduler_pb2.SequenceEnd(
            handle=handle,
            sequence_index=event.sequence_id.index,
            reason=common_pb2.FinishReason.Value(f"FINISH_REASON_{event.reason.name}"),
            num_tokens=event.num_tokens,
            num_cached_tokens=event.num_cached_tokens,
            queued_s=event.queued_s,
        )
        if (error := _ERRORS.get(event.reason)) is not None:
            end.error.CopyFrom(error_to_proto(error(event.message)))
        self._frame.ends.append(end)

    def close(self) -> None:
        """Nothing more will be said; what was gathered is still handed out."""
        self._closed = True
        self._ready.set()

    async def next_frame(self) -> scheduler_pb2.SessionFrame | None:
        """Everything gathered since the last frame; waits until there is something. None once closed and empty."""
        await self._ready.wait()
        if not self._closed:
            self._ready.clear()
        frame, self._frame = self._frame, scheduler_pb2.SessionFrame()
        return frame if frame.ByteSize() else None
