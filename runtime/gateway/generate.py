"""The one path from a parsed call to its answer, shared by every protocol."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import replace

from jetway.runtime.errors import InvalidArgument, ModelNotFound, Overloaded, Unavailable
from jetway.scheduler.request import InvalidRequest, Request
from jetway.v1 import common_pb2

from .answer import Answer
from .call import Call
from .inbox import Inbox
from .limits import CallLimits, check_tokens
from .metrics.instruments import Metrics
from .session import SchedulerSession
from .text.codec import TextCodec
from .text.stops import StopStrings
from .text.vocabulary import Vocabulary
from .transcript import Transcript
from .watch import Watch
from .words import quoted


class Generator:
    """Serves one model: tokenizes, submits, and cancels what nobody waits for any more."""

    def __init__(
        self, session: SchedulerSession, codec: TextCodec, metrics: Metrics, limits: CallLimits, model_name: str
    ) -> None:
        self._session = session
        self._codec = codec
        self._metrics = metrics
        self._limits = limits
        self._num_open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self.model_name = model_name

    @property
    def vocabulary(self) -> Vocabulary:
        return self._codec.vocabulary

    def watch(self, request_id: str) -> Watch:
        """For one call, to be entered when it arrives."""
        return Watch(self._metrics, request_id)

    def refusals(self) -> AbstractContextManager[None]:
        """Around what is looked at before a call has its watch: what is refused there counts as a request too."""
        return self._metrics.refusals()

    def engine(self) -> common_pb2.EngineDescription:
        """What computes the model. Raises Unavailable when no call can start now."""
        self._check_open()
        return self._session.engine

    def check_ready(self) -> None:
        """Raises Unavailable unless a call can start now, and is computed."""
        self._check_open()
        self._session.check_ready()

    def _check_open(self) -> None:
        if self._draining:
            raise Unavailable("the gateway is shutting down; try again")

    def check_model(self, name: str | None) -> None:
        """Raises ModelNotFound unless `name` is served here; None is the only model."""
        if name is not None and name != self.model_name:
            raise ModelNotFound(f"the model {quoted(name)} is not served here; {self.model_name!r} is", param="model")

    @asynccontextmanager
    async def answer(self, call: Call, watch: Watch) -> AsyncIterator[Answer]:
        """Entered once the scheduler has accepted the call; leaving it cancels what is still open.

        Raises a JetwayError for a call that is wrong or refused.
        """
        self.check_model(call.model)
        engine = self.engine()
        if call.sampling.logprobs is not None and "logprobs" not in engine.capabilities:
            raise InvalidArgument("logprobs: this model's engine gives none; leave it out", param="logprobs")
        self._limits.check(call, engine.max_seq_len)
        with self._counted():
            prompts = await self._codec.encode(call.prompts, self._limits.max_prompt_chars(engine.max_seq_len))
            for prompt in prompts:
                check_tokens(prompt, engine.max_seq_len)
            inbox = Inbox(len(prompts))
            generations = await self._session.submit([_request(call, prompt) for prompt in prompts], inbox)
            try:
                transcripts = self._transcripts(call, prompts)
                num_prompt_tokens = sum(map(len, prompts))
                watch.accepted(len(transcripts), num_prompt_tokens)
                yield Answer(inbox, generations, transcripts, num_prompt_tokens, watch)
            finally:
                for generation in generations:
                    generation.cancel()

    def _transcripts(self, call: Call, prompts: Sequence[Sequence[int]]) -> list[Transcript]:
        """One a choice."""
        return [
            Transcript(self._codec.detokenizer(prompt, token_ids), StopStrings(call.stop))
            for prompt, token_ids in zip(call.prompts, prompts)
            for _ in range(call.n)
        ]

    async def drain(self, timeout_s: float) -> None:
        """Start no more calls; return once none is open, at the latest after `timeout_s`."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Raises Overloaded when as many calls are open as may be."""
        most = self._limits.config.max_open_requests
        if self._num_open >= most:
            raise Overloaded(f"{most} calls are open, which is the limit; try again", retry_after_s=1)
        self._num_open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_open -= 1
            if not self._num_open:
                self._idle.set()


def _request(call: Call, prompt: Sequence[int]) -> Request:
    seed = secrets.randbits(63) if call.seed is None else call.seed
    try:
        return Request(
            id=call.request_id,
            prompt=prompt,
            sampling=replace(call.sampling, seed=seed),
            max_tokens=call.max_tokens,
            n=call.n,
            service_class=call.placement.service_class,
            tenant=call.tenant,
            priority=call.placement.priority,
            deadline_s=call.placement.deadline_s if call.deadline_s is None else call.deadline_s,
            queue_timeout_s=call.queue_timeout_s,
        )
    except InvalidRequest as error:
        raise InvalidArgument(str(error), param=error.param) from error
