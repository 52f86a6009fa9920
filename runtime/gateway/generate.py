"""The one path from a parsed call to its answer, shared by every protocol."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from jetway.runtime.errors import InvalidArgument, ModelNotFound, Unavailable
from jetway.scheduler.request import InvalidRequest, Request
from jetway.v1 import common_pb2

from .answer import Answer
from .call import Call
from .session import SchedulerSession
from .text.codec import TextCodec
from .text.stops import StopStrings


class Generator:
    """Serves one model: tokenizes, submits, and cancels what nobody waits for any more."""

    def __init__(self, session: SchedulerSession, codec: TextCodec, model_name: str) -> None:
        self._session = session
        self._codec = codec
        self._num_open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self.model_name = model_name

    def engine(self) -> common_pb2.EngineDescription:
        """What computes the model. Raises Unavailable when no call can start now."""
        if self._draining:
            raise Unavailable("the gateway is shutting down; try again")
        return self._session.engine

    def check_model(self, name: str | None) -> None:
        """Raises ModelNotFound unless `name` is served here; None is the only model."""
        if name is not None and name != self.model_name:
            raise ModelNotFound(f"the model {name!r} is not served here; {self.model_name!r} is", param="model")

    @asynccontextmanager
    async def answer(self, call: Call) -> AsyncIterator[Answer]:
        """Entered once the scheduler has accepted the call; leaving it cancels what is still open.

        Raises a JetwayError for a call that is wrong or refused.
        """
        self.check_model(call.model)
        self.engine()
        with self._counted():
            prompt = await self._codec.encode(call.prompt)
            generation = await self._session.submit(_request(call, prompt))
            try:
                yield Answer(generation, len(prompt), self._codec.detokenizer(), StopStrings(call.stop))
            finally:
                generation.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Start no more calls; return once none is open, at the latest after `timeout_s`."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._num_open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_open -= 1
            if not self._num_open:
                self._idle.set()


def _request(call: Call, prompt: list[int]) -> Request:
    try:
        return Request(id=call.request_id, prompt=prompt, sampling=call.sampling, max_tokens=call.max_tokens)
    except InvalidRequest as error:
        raise InvalidArgument(str(error), param=error.param) from error
