"""Runs one call inside its HTTP response, so that whatever ends the response ends the call."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jetway.runtime.errors import Internal
from jetway.runtime.gateway.access import Envelope
from jetway.runtime.gateway.answer import Answer
from jetway.runtime.gateway.beside import beside_the_loop
from jetway.runtime.gateway.disconnect import until_disconnect
from jetway.runtime.gateway.events import event_stream
from jetway.runtime.gateway.generate import Generator
from jetway.runtime.gateway.watch import Watch

from .errors import error_event
from .format import DONE, Format, Head, Shape
from .logprobs import LogprobsWriter
from .parse import HttpCall

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What answers the calls of one path."""

    generator: Generator
    parse: Callable[[bytes, Envelope], HttpCall]
    shape: Shape
    logprobs: LogprobsWriter
    stall_limit_s: float


class CompletionResponse(Response):
    """The answer to one call, whole or as a stream of events.

    Nothing is sent before the scheduler has accepted the call; until then errors are raised, for the application to
    answer. A client that disconnects, or that reads nothing for the endpoint's `stall_limit_s`, loses its call.
    """

    def __init__(self, endpoint: Endpoint, envelope: Envelope, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._envelope = envelope
        self._call_id = envelope.request_id
        self._call_body = body
        self._extra_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        generator = self._endpoint.generator
        with generator.watch(self._call_id) as watch:
            body = self._call_body
            call = await beside_the_loop(lambda: self._endpoint.parse(body, self._envelope), len(body))
            format = self._format(call)
            async with generator.answer(call.call, watch) as answer:
                if call.stream:
                    await self._stream(self._events(answer, format, watch), send)
                    return
                whole = format.whole(await answer.whole())
        await Response(whole, headers=self._extra_headers, media_type="application/json")(scope, receive, send)

    def _format(self, call: HttpCall) -> Format:
        head = Head(call_id=self._call_id, model=self._endpoint.generator.model_name, service_tier=call.service_tier)
        return Format(
            self._endpoint.shape,
            head,
            None if call.call.sampling.logprobs is None else self._endpoint.logprobs,
            include_usage=call.include_usage,
        )

    async def _stream(self, events: AsyncIterator[str], send: Send) -> None:
        try:
            async with event_stream(send, self._extra_headers, self._endpoint.stall_limit_s) as stream:
                await stream.start()
                async for event in events:
                    await stream.write(event)
        except TimeoutError:
            log.warning(
                "%s: the client reads nothing; its call is cancelled",
                self._call_id,
                extra={"request_id": self._call_id},
            )

    async def _events(self, answer: Answer, format: Format, watch: Watch) -> AsyncIterator[str]:
        """What the stream says, to its end; empty strings are left out."""
        try:
            if opening := format.opening(answer.num_choices):
                yield opening
            async for delta in answer:
                if events := format.delta(delta):
                    yield events
                if delta.ending is not None and delta.ending.error is not None:
                    return
        except Exception as error:
            log.exception("%s: a fault of the gateway", self._call_id, extra={"request_id": self._call_id})
            fault = Internal(f"a fault of the gateway: {type(error).__name__}")
            watch.failed(fault)
            yield error_event(fault) + DONE
