"""jetway.v1.Inference: parses calls into `Call`, formats answers; no more."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc

from jetway.runtime.errors import Cancelled, Internal, InvalidArgument, JetwayError, edge_of
from jetway.runtime.outbox import error_to_proto
from jetway.scheduler.request import SamplingParams
from jetway.v1 import common_pb2, inference_pb2, inference_pb2_grpc

from .answer import Delta, Usage
from .call import Call, Chat, Prompt, message, sampling_params
from .generate import Generator

log = logging.getLogger(__name__)

ERROR_KEY = "jetway-error-bin"  # trailing metadata of a non-OK status: the jetway.v1.Error
Context = grpc.aio.ServicerContext[Any, Any]


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """A client that cancels, or that reads nothing for `stall_limit_s`, loses its own call."""

    def __init__(self, generator: Generator, stall_limit_s: float) -> None:
        self._generator = generator
        self._stall_limit_s = stall_limit_s

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> inference_pb2.GenerateResponse:
        async with _errors_as_status(context):
            call = parse(request)
            async with self._generator.answer(call) as answer:
                completion = await answer.whole()
            return inference_pb2.GenerateResponse(
                request_id=call.request_id,
                model=self._generator.model_name,
                text=completion.text,
                token_ids=completion.token_ids,
                finish_reason=completion.outcome.finish_reason,
                usage=_usage(completion.outcome.usage),
            )

    # The base class knows generators only; grpc.aio also takes a coroutine that writes by itself, and only such a one
    # learns that the client does not read.
    async def GenerateStream(  # type: ignore[override]
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> None:
        async with _errors_as_status(context):
            call = parse(request)
            async with self._generator.answer(call) as answer:
                async for delta in answer:
                    await self._write(context, _delta(call.request_id, delta))

    async def ListModels(
        self, request: inference_pb2.ListModelsRequest, context: Context
    ) -> inference_pb2.ListModelsResponse:
        async with _errors_as_status(context):
            model = inference_pb2.Model(id=self._generator.model_name, engine=self._generator.engine())
            return inference_pb2.ListModelsResponse(models=[model])

    async def _write(self, context: Context, delta: inference_pb2.GenerateDelta) -> None:
        try:
            async with asyncio.timeout(self._stall_limit_s):
                await context.write(delta)
        except TimeoutError:
            raise Cancelled(f"the client read nothing for {self._stall_limit_s} s, which is the limit") from None


def parse(request: inference_pb2.GenerateRequest) -> Call:
    """Raises InvalidArgument."""
    return Call(
        request_id=request.request_id if request.HasField("request_id") else f"gen-{uuid.uuid4().hex}",
        model=request.model if request.HasField("model") else None,
        prompt=_prompt(request),
        sampling=_sampling(request.sampling),
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
    """Like `executor.wire.sampling_from_proto`, for messages of strangers: with a seed, and with errors by name."""
    given = {field.name: value for field, value in message.ListFields()}
    if "logprobs" in given:
        raise InvalidArgument("logprobs are not supported yet", param="logprobs")
    tokens, values = given.pop("logit_bias_tokens", ()), given.pop("logit_bias_values", ())
    if len(tokens) != len(values):
        raise InvalidArgument(
            f"logit_bias_tokens and logit_bias_values must have equal lengths, not {len(tokens)} and {len(values)}",
            param="logit_bias",
        )
    stop_token_ids = tuple(given.pop("stop_token_ids", ()))
    return sampling_params(given | {"logit_bias": tuple(zip(tokens, values)), "stop_token_ids": stop_token_ids})


def _delta(request_id: str, delta: Delta) -> inference_pb2.GenerateDelta:
    message = inference_pb2.GenerateDelta(request_id=request_id, text=delta.text, token_ids=delta.token_ids)
    if outcome := delta.outcome:
        message.finish_reason = outcome.finish_reason
        message.usage.CopyFrom(_usage(outcome.usage))
        if outcome.error is not None:
            message.error.CopyFrom(error_to_proto(outcome.error))
    return message


def _usage(usage: Usage) -> inference_pb2.Usage:
    return inference_pb2.Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)


@asynccontextmanager
async def _errors_as_status(context: Context) -> AsyncIterator[None]:
    """End the call with the status that `errors.EDGES` names, and the whole error in its trailing metadata."""
    try:
        yield
    except JetwayError as error:
        await _abort(context, error)
    except Exception as error:
        log.exception("a fault of the gateway ended a call")
        await _abort(context, Internal(f"a fault of the gateway: {type(error).__name__}"))


async def _abort(context: Context, error: JetwayError) -> NoReturn:
    details = error_to_proto(error).SerializeToString()
    await context.abort(grpc.StatusCode[edge_of(error).grpc], error.message, ((ERROR_KEY, details),))
    raise AssertionError("abort raises")
