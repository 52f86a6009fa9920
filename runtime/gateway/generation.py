"""One request at the scheduler, as the gateway sees it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from jetway.runtime.errors import JetwayError
from jetway.v1 import common_pb2, scheduler_pb2


@dataclass(frozen=True, slots=True)
class End:
    """How a sequence ended. There is an `error` unless it ended as STOP or LENGTH."""

    reason: common_pb2.FinishReason.ValueType
    error: JetwayError | None = None


@dataclass(slots=True)
class Gathered:
    """What one sequence gained since it was last looked at: tokens, then perhaps its end."""

    sequence_index: int
    tokens: list[int] = field(default_factory=list)
    end: End | None = None


class Generation:
    """One accepted request: iterates over what its sequences gain until all have ended.

    Between two looks everything gathers into one item a sequence, so its buffer never holds more than the sequences
    themselves. Whoever stops iterating calls `cancel`.
    """

    def __init__(self, num_sequences: int, send: Callable[[scheduler_pb2.SessionRequest], None], handle: int) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = set(range(num_sequences))
        self._gathered: dict[int, Gathered] = {}
        self._news = asyncio.Event()
        self._send = send
        self._handle = handle

    @property
    def ended(self) -> bool:
        """No sequence is open: the scheduler has been told, or has said, that it is over."""
        return not self._open

    def __aiter__(self) -> AsyncIterator[Gathered]:
        return self

    async def __anext__(self) -> Gathered:
        while not self._gathered:
            if not self._open:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._gathered.pop(next(iter(self._gathered)))

    def cancel(self) -> None:
        """End all that is open. Takes effect at once, so it needs no shield; later calls do nothing."""
        if self._open:
            self._open.clear()
            self._send(scheduler_pb2.SessionRequest(cancel=scheduler_pb2.Cancel(handle=self._handle)))

    def finish(self, sequence_index: int, kept_tokens: int) -> None:
        """End one sequence as STOP with its first `kept_tokens`; nothing more is heard of it."""
        self._gathered.pop(sequence_index, None)
        if sequence_index in self._open:
            self._open.remove(sequence_index)
            finish = scheduler_pb2.Finish(handle=self._handle, sequence_index=sequence_index, kept_tokens=kept_tokens)
            self._send(scheduler_pb2.SessionRequest(finish=finish))

    def accept(self) -> None:
        if not self.accepted.done():  # else whoever waited has gone, and its cancel is on the way
            self.accepted.set_result(None)

    def push(self, sequence_index: int, token: int) -> None:
        if sequence_index in self._open:  # else it is overshoot: sampled before the scheduler knew of the end
            self._gathered_of(sequence_index).tokens.append(token)

    def end(self, sequence_index: int, end: End) -> None:
        if sequence_index in self._open:
            self._open.remove(sequence_index)
            self._gathered_of(sequence_index).end = end

    def lose(self, error: JetwayError) -> None:
        """End all that is open, without telling the scheduler."""
        if not self.accepted.done():
            self.accepted.set_exception(error)
            self._open.clear()
        for sequence_index in list(self._open):
            self.end(sequence_index, End(common_pb2.FINISH_REASON_FAILED, error))

    def _gathered_of(self, sequence_index: int) -> Gathered:
        self._news.set()
        return self._gathered.setdefault(sequence_index, Gathered(sequence_index))
