"""What one call hears from the scheduler: whether all of its requests are accepted, then what its choices gain."""

import asyncio
import time
from dataclasses import dataclass, field

from jetway.runtime.errors import JetwayError
from jetway.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class End:
    """How a sequence ended. There is an `error` unless it ended as STOP or LENGTH."""

    reason: common_pb2.FinishReason.ValueType
    num_cached_tokens: int | None = 0  # of its prompt; None: not known
    error: JetwayError | None = None
    queued_s: float | None = None  # from its arrival at the scheduler to its first start; None: not known
    heard_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(slots=True)
class Gathered:
    """What one choice gained since it was last looked at: tokens, then perhaps its end."""

    choice: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[common_pb2.TokenLogprobs] = field(default_factory=list)  # parallel, where the call asked
    end: End | None = None


class Inbox:
    """Filled by the call's generations, read by its answer. Between two looks everything gathers into one item a
    choice, so it never holds more than the choices themselves.
    """

    def __init__(self, num_requests: int) -> None:
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_unanswered = num_requests
        self._gathered: dict[int, Gathered] = {}
        self._news = asyncio.Event()

    async def accepted(self) -> None:
        """Return once every request is accepted. Raises the error of the first that is refused."""
        await self._accepted

    async def next(self) -> Gathered:
        """What some choice gained. Whoever stops waiting loses nothing."""
        while not self._gathered:
            self._news.clear()
            await self._news.wait()
        return self._gathered.pop(next(iter(self._gathered)))

    def accept(self) -> None:
        """One of the requests is accepted."""
        self._num_unanswered -= 1
        if not self._num_unanswered and not self._accepted.done():  # done: refused, or whoever waited has gone
            self._accepted.set_result(None)

    def refuse(self, error: JetwayError) -> None:
        if not self._accepted.done():
            self._accepted.set_exception(error)

    def of(self, choice: int) -> Gathered:
        """Where to put what the choice gained."""
        self._news.set()
        gathered = self._gathered.get(choice)
        if gathered is None:
            gathered = self._gathered[choice] = Gathered(choice)
        return gathered
