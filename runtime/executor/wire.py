"""Plans and results between the scheduler's pure types and `jetway.v1` messages. Translation only."""

from typing import cast

from jetway.runtime.wire import logprobs_from_proto, logprobs_to_proto, sampling_from_proto, sampling_to_proto
from jetway.scheduler.plan import (
    DeviceBlock,
    HostBlock,
    Slot,
    Start,
    StepPlan,
    StepResult,
)
from jetway.scheduler.request import SequenceId
from jetway.v1 import executor_pb2

EPOCH_KEY = "jetway-epoch"


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
        copied_out_us=round(result.copied_out_s * 1e6),
        copied_in_us=round(result.copied_in_s * 1e6),
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
        copied_out_s=message.copied_out_us / 1e6,
        copied_in_s=message.copied_in_us / 1e6,
    )
