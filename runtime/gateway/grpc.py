"""jetway.v1.Inference: parses calls into `Call`, formats answers; no more."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from jetway.runtime.errors import Cancelled, InvalidArgument
from jetway.runtime.wire import error_to_proto
from jetway.scheduler.request import SamplingParams
from jetway.v1 import common_pb2, inference_pb2, inference_pb2_grpc

from .access import Access, Envelope, deadline_s
from .answer import Answer, Choice, Delta, Usage
from .beside import beside_the_loop
from .call import Call, Chat, Prompt, message, sampling_params
from .faults import faults_as_errors
from .generate import Generator
from .grpc_call import Context, caller_of, errors_as_status
from .stall import StallLimit
from .transcript import ScoredToken
from .words import plain


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """A client that cancels, or that reads nothing for `stall_limit_s`, loses its own call."""

    def __init__(self, generator: Generator, access: Access, stall_limit_s: float) -> None:
        self._generator = generator
        self._access = access
        self._stall_limit_s = stall_limit_s

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> inference_pb2.GenerateResponse:
        async with errors_as_status(context):
            envelope = self._envelope(request, context)
            async with self._answer(request, envelope) as answer:
                completion = await answer.whole()
            return inference_pb2.GenerateResponse(
                request_id=envelope.request_id,
                model=self._generator.model_name,
                choices=[_choice(index, choice) for index, choice in enumerate(completion.choices)],
                usage=_usage(completion.usage),
            )

    # The base class knows generators only; grpc.aio also takes a coroutine that writes by itself, and only such a one
    # learns that the client does not read.
    async def GenerateStream(  # type: ignore[override]
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> None:
        async with errors_as_status(context):
            envelope = self._envelope(request, context)
            async with (
                self._answer(request, envelope) as answer,
                _stall_as_error(self._stall_limit_s) as stall,
            ):
                async for delta in answer:
                    await stall.wait(context.write(_delta(envelope.request_id, delta)))

    async def ListModels(
        self, request: inference_pb2.ListModelsRequest, context: Context
    ) -> inference_pb2.ListModelsResponse:
        async with errors_as_status(context):
            with self._generator.refusals():
                caller_of(context, self._access)
            model = inference_pb2.Model(id=self._generator.model_name, engine=self._generator.engine())
            return inference_pb2.ListModelsResponse(models=[model])

    @asynccontextmanager
    async def _answer(self, request: inference_pb2.GenerateRequest, envelope: Envelope) -> AsyncIterator[Answer]:
        with faults_as_errors(envelope.request_id), self._generator.watch(envelope.request_id) as watch:
            call = await beside_the_loop(lambda: parse(request, envelope), request.ByteSize())
            async with self._generator.answer(call, watch) as answer:
                yield answer

    def _envelope(self, request: inference_pb2.GenerateRequest, context: Context) -> Envelope:
        """Raises Unauthenticated and InvalidArgument."""
        with self._generator.refusals():
            return Envelope(
                request_id=_request_id(request),
                caller=caller_of(context, self._access),
                placer=self._access.placer,
                service_class=request.service_class if request.HasField("service_class") else None,
                class_param="service_class",
                deadline_s=deadline_s(request.deadline_ms, "deadline_ms") if request.HasField("deadline_ms") else None,
            )


def _request_id(request: inference_pb2.GenerateRequest) -> str:
    """Raises InvalidArgument for one that could not stand in a log line."""
    return plain(request.request_id, "request_id") if request.HasField("request_id") else f"gen-{uuid.uuid4().hex}"


def parse(request: inference_pb2.GenerateRequest, envelope: Envelope) -> Call:
    """Raises InvalidArgument and PermissionDenied."""
    return Call(
        request_id=envelope.request_id,
        tenant=envelope.caller.tenant,
        placement=envelope.place(request.priority if request.HasField("priority") else None),
        deadline_s=envelope.deadline_s,
        model=request.model if request.HasField("model") else None,
        prompts=(_prompt(request),),
        sampling=_sampling(request.sampling),
        seed=request.sampling.seed if request.sampling.HasField("seed") else None,
        n=request.n if request.HasField("n") else 1,
        max_tokens=request.max_tokens if request.HasField("max_tokens") else None,
        stop=tuple(request.stop),
    )


def _prompt(request: inference_pb2.GenerateRequest) -> Prompt:
    match request.WhichOneof("input"):
        case "text":
            return request.text
        case "token_ids":
            return tuple(request.token_ids.ids)
        case "chat":
            messages = enumerate(request.chat.messages)
            return Chat(tuple(message(each.role, each.content, f"messages[{index}]") for index, each in messages))
        case _:
            raise InvalidArgument("the request has no input: text, token_ids or chat", param="input")


def _sampling(message: common_pb2.SamplingParams) -> SamplingParams:
    """Like `executor.wire.sampling_from_proto`, for messages of strangers: with errors by name."""
    given = {field.name: value for field, value in message.ListFields()}
    tokens, values = given.pop("logit_bias_tokens", ()), given.pop("logit_bias_values", ())
    if len(tokens) != len(values):
        raise InvalidArgument(
            f"logit_bias_tokens and logit_bias_values must have equal lengths, not {len(tokens)} and {len(values)}",
            param="logit_bias",
        )
    stop_token_ids = tuple(given.pop("stop_token_ids", ()))
    return sampling_params(given | {"logit_bias": tuple(zip(tokens, values)), "stop_token_ids": stop_token_ids})


def _choice(index: int, choice: Choice) -> inference_pb2.Choice:
    return inference_pb2.Choice(
        index=index,
        text=choice.text,
        token_ids=choice.token_ids,
        logprobs=_logprobs(choice.scored),
        finish_reason=choice.finish_reason,
    )


def _delta(request_id: str, delta: Delta) -> inference_pb2.GenerateDelta:
    piece = delta.piece
    message = inference_pb2.GenerateDelta(
        request_id=request_id, index=delta.choice, text=piece.text, token_ids=piece.token_ids,
        logprobs=_logprobs(piece.scored),
    )  # fmt: skip
    if ending := delta.ending:
        message.finish_reason = ending.finish_reason
        if ending.error is not None:
            message.error.CopyFrom(error_to_proto(ending.error))
    if delta.usage is not None:
        message.usage.CopyFrom(_usage(delta.usage))
    return message


def _logprobs(scored: Sequence[ScoredToken]) -> list[common_pb2.TokenLogprobs]:
    return [each.scores for each in scored]


def _usage(usage: Usage) -> inference_pb2.Usage:
    return inference_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
    )


@asynccontextmanager
async def _stall_as_error(limit_s: float) -> AsyncIterator[StallLimit]:
    try:
        async with StallLimit(limit_s) as stall:
            yield stall
    except TimeoutError:
        raise Cancelled(f"the client read nothing for {limit_s} s, which is the limit") from None
