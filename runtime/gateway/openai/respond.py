"""Runs one call inside its HTTP response, so that whatever ends the response ends the call."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from jetway.runtime.errors import Internal
from jetway.runtime.gateway.answer import Answer
from jetway.runtime.gateway.generate import Generator

from .format import DONE, Format, error_event
from .parse import HttpCall

log = logging.getLogger(__name__)


class CompletionResponse(Response):
    """The answer to one call, whole or as a stream of events.

    Nothing is sent before the scheduler has accepted the call; until then errors are raised, for the application to
    answer. A client that disconnects, or that reads nothing for `stall_limit_s`, loses its call.
    """

    def __init__(
        self,
        call: HttpCall,
        format: Format,
        generator: Generator,
        *,
        stall_limit_s: float,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._call = call
        self._format = format
        self._generator = generator
        self._stall_limit_s = stall_limit_s
        self._extra_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _until_disconnect(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._generator.answer(self._call.call) as answer:
            if self._call.stream:
                await self._stream(answer, send)
                return
            body = self._format.whole(await answer.whole())
        await Response(body, headers=self._extra_headers, media_type="application/json")(scope, receive, send)

    async def _stream(self, answer: Answer, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            **self._extra_headers,
        }
        raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": raw_headers})
            async for event in self._events(answer):
                await self._send(send, {"type": "http.response.body", "body": event.encode(), "more_body": True})
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("the client of %s reads nothing; its call is cancelled", self._call.call.request_id)

    async def _events(self, answer: Answer) -> AsyncIterator[str]:
        """What the stream says, empty strings left out."""
        try:
            if opening := self._format.opening():
                yield opening
            async for delta in answer:
                if events := self._format.delta(delta):
                    yield events
        except Exception as error:
            log.exception("a fault of the gateway ended a stream")
            yield error_event(Internal(f"a fault of the gateway: {type(error).__name__}")) + DONE

    async def _send(self, send: Send, message: Message) -> None:
        """Raises TimeoutError when the client does not read."""
        async with asyncio.timeout(self._stall_limit_s):
            await send(message)


async def _until_disconnect(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Run `work`, which is cancelled when the client goes away first. Raises what `work` raises."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if not working.cancelled():
        working.result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
