"""Plans, results and descriptions between the scheduler's pure types and `jetway.v1` messages. Translation only."""

from typing import cast

from jetway.scheduler.plan import (
    DeviceBlock,
    EngineDescription,
    HostBlock,
    Slot,
    Start,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from jetway.scheduler.request import InvalidRequest, SamplingParams, SequenceId
from jetway.v1 import common_pb2, executor_pb2

MAX_MESSAGE_BYTES = 64 << 20
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
EPOCH_KEY = "jetway-epoch"


def description_to_proto(description: EngineDescription) -> common_pb2.EngineDescription:
    fields = {name: getattr(description, name) for name in EngineDescription.__slots__}
    return common_pb2.EngineDescription(**fields)


def description_from_proto(message: common_pb2.EngineDescription) -> EngineDescription:
    fields = {name: getattr(message, name) for name in EngineDescription.__slots__}
    return EngineDescription(**fields | {"capabilities": tuple(message.capabilities)})


def sampling_to_proto(params: SamplingParams) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias_tokens=[token for token, _ in params.logit_bias],
        logit_bias_values=[bias for _, bias in params.logit_bias],
        logprobs=params.logprobs,
        stop_token_ids=params.stop_token_ids,
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        seed=params.seed,
    )


_REPEATED = {"logit_bias_tokens", "logit_bias_values", "stop_token_ids"}


def sampling_from_proto(message: common_pb2.SamplingParams) -> SamplingParams:
    """The parameters with defaults for what is absent. Raises InvalidRequest for a value out of range or without its pair."""
    if len(message.logit_bias_tokens) != len(message.logit_bias_values):
        raise InvalidRequest("logit_bias", "logit_bias must have as many values as tokens")
    present = {field.name: value for field, value in message.ListFields() if field.name not in _REPEATED}
    return SamplingParams(
        logit_bias=tuple(zip(message.logit_bias_tokens, message.logit_bias_values, strict=True)),
        stop_token_ids=tuple(message.stop_token_ids),
        **present,
    )


def logprobs_to_proto(logprobs: TokenLogprobs) -> common_pb2.TokenLogprobs:
    return common_pb2.TokenLogprobs(
        logprob=logprobs.logprob, top_tokens=logprobs.top_tokens, top_logprobs=logprobs.top_logprobs
    )


def logprobs_from_proto(message: common_pb2.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(message.logprob, tuple(message.top_tokens), tuple(message.top_logprobs))


def plan_to_proto(plan: StepPlan) -> executor_pb2.StepPlan:
    return executor_pb2.StepPlan(
        step=plan.step,
        releases=plan.releases,
        copy_out_device=[device for device, _ in plan.copies_out],
        copy_out_host=[host for _, host in plan.copies_out],
        copy_in_host=[host for host, _ in plan.copies_in],
        copy_in_device=[device for _, device in plan.copies_in],
        starts=[_start_to_proto(start) for start in plan.starts],
        grow_slots=plan.grow_slots,
        grow_blocks=plan.grow_blocks,
        row_slots=plan.row_slots,
        row_tokens=plan.row_tokens,
    )


def plan_from_proto(message: executor_pb2.StepPlan) -> StepPlan:
    """The plan. Raises ValueError where parallel arrays differ in length, InvalidRequest for bad sampling."""
    return StepPlan(
        step=message.step,
        releases=cast(list[Slot], list(message.releases)),
        copies_out=cast(
            list[tuple[DeviceBlock, HostBlock]], list(zip(message.copy_out_device, message.copy_out_host, strict=True))
        ),
        copies_in=cast(
            list[tuple[HostBlock, DeviceBlock]], list(zip(message.copy_in_host, message.copy_in_device, strict=True))
        ),
        starts=[_start_from_proto(start) for start in message.starts],
        grow_slots=cast(list[Slot], list(message.grow_slots)),
        grow_blocks=cast(list[DeviceBlock], list(message.grow_blocks)),
        row_slots=cast(list[Slot], list(message.row_slots)),
        row_tokens=list(message.row_tokens),
    )


def _start_to_proto(start: Start) -> executor_pb2.Start:
    return executor_pb2.Start(
        slot=start.slot,
        request_id=start.sequence_id.request_id,
        sequence_index=start.sequence_id.index,
        tokens=start.tokens,
        prompt_len=start.prompt_len,
        computed=start.computed,
        blocks=start.blocks,
        sampling=sampling_to_proto(start.sampling),
    )


def _start_from_proto(message: executor_pb2.Start) -> Start:
    return Start(
        slot=Slot(message.slot),
        sequence_id=SequenceId(message.request_id, message.sequence_index),
        tokens=list(message.tokens),
        prompt_len=message.prompt_len,
        computed=message.computed,
        blocks=cast(list[DeviceBlock], list(message.blocks)),
        sampling=sampling_from_proto(message.sampling),
    )


def result_to_proto(result: StepResult) -> executor_pb2.StepResult:
    return executor_pb2.StepResult(
        step=result.step,
        slots=result.slots,
        tokens=result.tokens,
        stopped=result.stopped,
        skipped_slots=result.skipped,
        failures=[executor_pb2.SequenceFailure(slot=slot, message=message) for slot, message in result.failures],
        logprob_rows=list(result.logprobs),
        logprobs=[logprobs_to_proto(logprobs) for logprobs in result.logprobs.values()],
        elapsed_us=round(result.elapsed_s * 1e6),
        copied_us=round(result.copied_s * 1e6),
    )


def result_from_proto(message: executor_pb2.StepResult) -> StepResult:
    return StepResult(
        step=message.step,
        slots=cast(list[Slot], list(message.slots)),
        tokens=list(message.tokens),
        stopped=list(message.stopped),
        skipped=cast(list[Slot], list(message.skipped_slots)),
        failures=[(Slot(failure.slot), failure.message) for failure in message.failures],
        logprobs={
            row: logprobs_from_proto(logprobs)
            for row, logprobs in zip(message.logprob_rows, message.logprobs, strict=True)
        },
        elapsed_s=message.elapsed_us / 1e6,
        copied_s=message.copied_us / 1e6,
    )
