"""Messages carry everything: what comes back equals what was sent, field by field."""

from dataclasses import fields

import pytest

from jetway.runtime.executor.wire import plan_from_proto, plan_to_proto, result_from_proto, result_to_proto
from jetway.runtime.wire import description_from_proto, description_to_proto, sampling_from_proto
from jetway.scheduler.plan import Slot, StepPlan, StepResult, TokenLogprobs
from jetway.scheduler.request import InvalidRequest, SamplingParams
from jetway.v1 import common_pb2, executor_pb2
from tests.runtime.executor.driving import make_description, make_plan, make_start

# Every number is exact in f32, and none is its field's default.
SAMPLING = SamplingParams(
    temperature=0.5,
    top_k=40,
    top_p=0.75,
    min_p=0.125,
    repetition_penalty=1.25,
    presence_penalty=-0.5,
    frequency_penalty=0.25,
    logit_bias=((5, -1.5), (9, 2.0)),
    logprobs=0,
    stop_token_ids=(7, 8),
    min_tokens=3,
    ignore_eos=True,
    seed=2**64 - 1,
)
PLAN = make_plan(
    12,
    releases=[4, 2],
    copies_out=[(1, 5), (2, 6)],
    copies_in=[(7, 3)],
    starts=[make_start(2, [10, 11, 12], [8, 9], computed=1, prompt_len=2, sampling=SAMPLING)],
    grow=[(0, 30), (1, 31)],
    rows=[(2, 2), (0, 1), (1, 1)],
)
RESULT = StepResult(
    step=12,
    slots=[Slot(2), Slot(0)],
    tokens=[99, 100],
    stopped=[False, True],
    skipped=[Slot(1)],
    failures=[(Slot(3), "the best logit is nan")],
    logprobs={1: TokenLogprobs(-0.5, (100, 4), (-0.5, -2.25))},
    elapsed_s=0.001234,
    copied_out_s=0.000567,
    copied_in_s=0.000123,
)


def fields_left_at_default(value: StepPlan | StepResult | SamplingParams) -> list[str]:
    return [field.name for field in fields(value) if getattr(value, field.name) == field.default]


def test_plans() -> None:
    assert fields_left_at_default(PLAN) == fields_left_at_default(SAMPLING) == []
    assert plan_from_proto(executor_pb2.StepPlan.FromString(plan_to_proto(PLAN).SerializeToString())) == PLAN


def test_results() -> None:
    assert fields_left_at_default(RESULT) == []
    assert result_from_proto(executor_pb2.StepResult.FromString(result_to_proto(RESULT).SerializeToString())) == RESULT


def test_descriptions() -> None:
    assert description_from_proto(description_to_proto(make_description())) == make_description()


def test_absent_sampling_fields_mean_their_defaults() -> None:
    assert sampling_from_proto(common_pb2.SamplingParams()) == SamplingParams()


def test_explicit_zeros_are_not_absent() -> None:
    message = common_pb2.SamplingParams(temperature=0.0, logprobs=0, min_tokens=0)
    assert sampling_from_proto(message) == SamplingParams(temperature=0.0, logprobs=0)


def test_values_out_of_range_and_unequal_arrays_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"top_p must be in \(0.0, 1.0\], not 1.5"):
        sampling_from_proto(common_pb2.SamplingParams(top_p=1.5))
    with pytest.raises(ValueError):
        plan_from_proto(executor_pb2.StepPlan(copy_in_host=[1]))
