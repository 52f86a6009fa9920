"""Slots: the arrays a plan becomes, the order of its parts, what ends a sequence, and plans that are refused."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from jetway.runtime.executor.base import Int32Array, Sampled, StepBatch, SynchronousEngine
from jetway.runtime.executor.counts import PlanError
from jetway.runtime.executor.starts import content_hash
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.plan import EngineDescription, Slot, StepPlan, StepResult, TokenLogprobs
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import GREEDY, make_description, make_plan, make_start

EOS = 2


@dataclass
class RecordingEngine(SynchronousEngine):
    """Writes down its calls and samples what the test put into `answers`, one a step; else token 7 in every row."""

    answers: list[Sampled] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    eos_token_ids: frozenset[int] = frozenset({EOS})

    def describe(self) -> EngineDescription:
        return make_description()

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        self.calls.append(("copy_out", device_blocks.tolist(), host_blocks.tolist()))

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        self.calls.append(("copy_in", host_blocks.tolist(), device_blocks.tolist()))

    def execute(self, batch: StepBatch) -> Sampled:
        self.calls.append(batch)
        return self.answers.pop(0) if self.answers else Sampled([7] * len(batch.sample_states), {}, {})


def untimed(result: StepResult) -> StepResult:
    assert 0.0 <= result.copied_s < result.elapsed_s
    return replace(result, elapsed_s=0.0, copied_out_s=0.0, copied_in_s=0.0)


def result_of(step: int, **fields: Any) -> StepResult:
    """An expected result whose omitted fields are empty lists, as Slots gives them."""
    return StepResult(step=step, **({"slots": [], "tokens": [], "stopped": [], "skipped": [], "failures": []} | fields))


def test_a_mixed_step_becomes_these_arrays() -> None:
    """A first chunk, the end of a resumed prefill, and a one-token prompt, in the plan's order."""
    engine = RecordingEngine()
    starts = [
        make_start(2, [10, 11, 12, 13, 14, 15], [7, 3], computed=4, prompt_len=5),
        make_start(0, [20, 21, 22, 23, 24, 25, 26, 27, 28], [1, 2, 5]),
        make_start(5, [42], [9]),
    ]
    result = Slots(engine).run(make_plan(1, starts=starts, rows=[(0, 5), (2, 2), (5, 1)]))
    assert untimed(result) == result_of(1, slots=[2, 5], tokens=[7, 7], stopped=[False, False])
    [batch] = engine.calls
    arrays = {
        name: (getattr(batch, name).dtype.name, getattr(batch, name).tolist())
        for name in StepBatch.__slots__
        if isinstance(getattr(batch, name), np.ndarray)
    }
    assert arrays == {
        "input_ids": ("int64", [20, 21, 22, 23, 24, 14, 15, 42]),
        "position_ids": ("int64", [0, 1, 2, 3, 4, 4, 5, 0]),
        "past_lens": ("int32", [0, 4, 0]),
        "subsequence_begins": ("int32", [0, 5, 7, 8]),
        "block_indices": ("int32", [1, 2, 7, 3, 9]),
        "block_indices_begins": ("int32", [0, 2, 4, 5]),
        "sample_tokens": ("int64", [6, 7]),
        "row_slots": ("int64", [0, 2, 5]),
        "start_lens": ("int32", [9, 6, 1]),
        "pending_rows": ("int64", []),
    }
    assert batch.max_context_len == 6
    resumed, single = batch.sample_states
    assert (resumed.tokens, resumed.prompt_len, resumed.params) == ([10, 11, 12, 13, 14, 15, 7], 5, GREEDY)
    assert (single.tokens, single.stop_ids) == ([42, 7], {EOS})


def test_decodes_follow_on_sampled_tokens_and_grown_tables() -> None:
    engine = RecordingEngine([Sampled([30], {}, {}), Sampled([31], {}, {}), Sampled([32], {}, {})])
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(1, [5, 6, 8], [4])], rows=[(1, 3)]))
    slots.run(make_plan(2, rows=[(1, 1)]))
    slots.run(make_plan(3, grow=[(1, 9), (1, 2)], rows=[(1, 1)]))
    last = engine.calls[-1]
    assert (last.input_ids.tolist(), last.position_ids.tolist(), last.past_lens.tolist()) == ([31], [4], [4])
    assert last.block_indices.tolist() == [4, 9]  # the second block it grew by is not needed yet
    assert last.start_lens.tolist() == [3]
    assert repr(slots) == "<Slots after step 3 [1: 5/6 in [4, 9, 2]]>"


def test_a_plan_takes_effect_as_if_serial() -> None:
    """Release, copy out, copy in, start in the freed slot, compute: in this order, in one plan."""
    engine = RecordingEngine()
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(0, [1, 2, 3], [6])], rows=[(0, 3)]))
    engine.calls.clear()
    restart = make_start(0, [9, 9], [6])
    copies_out, copies_in = [(6, 1), (3, 0)], [(2, 6)]
    plan = make_plan(2, releases=[0], copies_out=copies_out, copies_in=copies_in, starts=[restart], rows=[(0, 2)])
    result = slots.run(plan)
    assert engine.calls[:2] == [("copy_out", [6, 3], [1, 0]), ("copy_in", [2], [6])]
    assert engine.calls[2].input_ids.tolist() == [9, 9]
    assert repr(slots) == "<Slots after step 2 [0: 2/3 in [6]]>"
    assert result.copied_out_s > 0.0 and result.copied_in_s > 0.0
    assert slots.run(make_plan(3)).copied_s == 0.0


def test_a_plan_may_hold_only_releases() -> None:
    engine = RecordingEngine()
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(0, [1], [0])], rows=[(0, 1)]))
    assert untimed(slots.run(make_plan(2, releases=[0]))) == StepResult(step=2, skipped=[])
    assert repr(slots) == "<Slots after step 2 []>" and len(engine.calls) == 1


def test_an_end_token_ends_its_sequence_and_later_rows_are_skipped() -> None:
    """A row planned before the end was known is skipped, by name; the other sequence goes on."""
    engine = RecordingEngine([Sampled([EOS, 8], {}, {})])
    slots = Slots(engine)
    starts = [make_start(0, [1], [0]), make_start(1, [1], [1])]
    first = slots.run(make_plan(1, starts=starts, rows=[(0, 1), (1, 1)]))
    assert untimed(first) == result_of(1, slots=[0, 1], tokens=[EOS, 8], stopped=[True, False])
    second = slots.run(make_plan(2, rows=[(0, 1), (1, 1)]))
    assert untimed(second) == result_of(2, slots=[1], tokens=[7], stopped=[False], skipped=[0])
    assert engine.calls[-1].past_lens.tolist() == [1]
    third = slots.run(make_plan(3, releases=[0], starts=[make_start(0, [3], [0])], rows=[(0, 1)]))
    assert untimed(third) == result_of(3, slots=[0], tokens=[7], stopped=[False])


@pytest.mark.parametrize(
    ("sampling", "stopped"),
    [
        (SamplingParams(temperature=0.0), [True, False]),
        (SamplingParams(temperature=0.0, ignore_eos=True), [False, False]),
        (SamplingParams(temperature=0.0, stop_token_ids=(8, 5000)), [True, True]),
        (SamplingParams(temperature=0.0, ignore_eos=True, stop_token_ids=(EOS,)), [True, False]),
    ],
    ids=["end", "ignore-eos", "stop-ids", "stop-id-is-end"],
)
def test_what_stops_a_sequence(sampling: SamplingParams, stopped: Sequence[bool]) -> None:
    engine = RecordingEngine([Sampled([EOS, 8], {}, {})])
    starts = [make_start(slot, [1], [slot], sampling=sampling) for slot in (0, 1)]
    assert Slots(engine).run(make_plan(1, starts=starts, rows=[(0, 1), (1, 1)])).stopped == stopped


def test_a_failed_row_ends_its_sequence_alone() -> None:
    logprobs = TokenLogprobs(-1.0)
    engine = RecordingEngine([Sampled([0, 8], {1: logprobs}, {0: "the best logit is nan"})])
    slots = Slots(engine)
    starts = [make_start(4, [1], [0]), make_start(1, [1], [1])]
    first = slots.run(make_plan(1, starts=starts, rows=[(4, 1), (1, 1)]))
    assert untimed(first) == result_of(
        1, slots=[1], tokens=[8], stopped=[False], failures=[(4, "the best logit is nan")], logprobs={0: logprobs}
    )
    assert untimed(slots.run(make_plan(2, rows=[(4, 1)]))) == StepResult(step=2, skipped=[Slot(4)])
    assert repr(slots) == "<Slots after step 2 [4: 1/2 in [0] ended, 1: 1/2 in [1]]>"


BIAS = SamplingParams(logit_bias=((1000, 1.0),))
ILLEGAL = [
    (make_plan(3), "step 3 follows step 1"),
    (make_plan(2, releases=[1]), "slot 1 is released but not resident"),
    (make_plan(2, releases=[0, 0]), "slot released twice: [0]"),
    (make_plan(2, releases=[8]), "slot 8 does not exist; there are 8"),
    (make_plan(2, starts=[make_start(0, [1], [1])]), "slot 0 is started but resident"),
    (make_plan(2, starts=[make_start(1, [1], [1])] * 2), "slot 1 is started but resident"),
    (make_plan(2, starts=[make_start(9, [1], [1])]), "slot 9 does not exist; there are 8"),
    (make_plan(2, starts=[make_start(1, [], [1])]), "slot 1: known tokens must be in [1, 40], not 0"),
    (make_plan(2, starts=[make_start(1, [1] * 41, [1])]), "slot 1: known tokens must be in [1, 40], not 41"),
    (make_plan(2, starts=[make_start(1, [1000], [1])]), "token 1000 does not exist; there are 1000"),
    (make_plan(2, starts=[make_start(1, [1], [64])]), "device block 64 does not exist; there are 64"),
    (make_plan(2, starts=[make_start(1, [1], range(11))]), "slot 1: blocks must be in [0, 10], not 11"),
    (make_plan(2, starts=[make_start(1, [1], [1], computed=1)]), "slot 1: computed tokens must be in [0, 0], not 1"),
    (make_plan(2, starts=[make_start(1, [1], [1], prompt_len=2)]), "slot 1: prompt_len must be in [1, 1], not 2"),
    (make_plan(2, starts=[make_start(1, [1], [1], sampling=BIAS)]), "logit_bias token 1000 does not exist; there are 1000"),
    (make_plan(2, copies_out=[(64, 0)]), "block copied out 64 does not exist; there are 64"),
    (make_plan(2, copies_out=[(0, 8)]), "block copied out 8 does not exist; there are 8"),
    (make_plan(2, copies_in=[(8, 0)]), "block copied in 8 does not exist; there are 8"),
    (make_plan(2, copies_in=[(0, 64)]), "block copied in 64 does not exist; there are 64"),
    (make_plan(2, copies_in=[(0, 3), (1, 3)]), "block copied in to twice: [3]"),
    (make_plan(2, grow=[(1, 3)]), "slot 1 grows but is not resident"),
    (make_plan(2, grow=[(0, 64)]), "device block 64 does not exist; there are 64"),
    (make_plan(2, grow=[(0, 3)] * 10), "slot 0: blocks must be in [0, 10], not 11"),
    (replace(make_plan(2, grow=[(0, 3)]), grow_blocks=()), "grow_slots and grow_blocks differ in length"),
    (make_plan(2, rows=[(1, 1)]), "the row of slot 1 is not resident"),
    (make_plan(2, rows=[(0, 1), (0, 1)]), "slot of a row twice: [0]"),
    (make_plan(2, rows=[(0, 0)]), "the row of slot 0 computes no token"),
    (make_plan(2, rows=[(0, 2)]), "the row of slot 0 computes more than its known tokens"),
    (make_plan(2, starts=[make_start(1, [1] * 5, [1])], rows=[(1, 5)]), "the row of slot 1 computes more than its blocks hold"),
    (make_plan(2, rows=[(0, 65)]), "tokens of the step must be in [0, 64], not 65"),
    (replace(make_plan(2, rows=[(0, 1)]), row_tokens=()), "row_slots and row_tokens differ in length"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "message"), ILLEGAL, ids=[message for _, message in ILLEGAL])
def test_an_illegal_plan_is_refused_and_changes_nothing(plan: StepPlan, message: str) -> None:
    """Whatever else the plan holds: a release, copies and a start that would be legal are not done either."""
    engine = RecordingEngine()
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(0, [1, 2], [5]), make_start(7, [1, 2], [6])], rows=[(0, 2), (7, 2)]))
    before = repr(slots)
    also = replace(
        plan,
        releases=[*plan.releases, Slot(7)],
        copies_out=[*plan.copies_out, *make_plan(2, copies_out=[(2, 7)]).copies_out],
        starts=[*plan.starts, make_start(6, [1], [2])],
    )
    with pytest.raises(PlanError) as error:
        slots.run(also)
    assert str(error.value) == message
    assert repr(slots) == before and len(engine.calls) == 1
    assert untimed(slots.run(make_plan(2, rows=[(0, 1)]))) == result_of(2, slots=[0], tokens=[7], stopped=[False])


def test_content_hash_names_what_decides_the_tokens() -> None:
    sampled = SamplingParams(seed=3)
    assert content_hash([1, 2], 0, GREEDY) == content_hash((1, 2), 0, replace(GREEDY, seed=9))
    different = [
        content_hash([1, 2], 0, GREEDY),
        content_hash([2, 1], 0, GREEDY),
        content_hash([1, 2], 1, GREEDY),
        content_hash([1, 2], 0, sampled),
        content_hash([1, 2], 0, replace(sampled, seed=4)),
        content_hash([1, 2], 1, sampled),
    ]
    assert len(set(different)) == 6 and all(0 <= value < 2**64 for value in different)


def test_what_a_step_waited_for_copies_counts_as_copying() -> None:
    engine = RecordingEngine(answers=[Sampled([7], {}, {}, copy_wait_s=5.0)])
    result = Slots(engine).run(make_plan(1, starts=[make_start(0, [10], [1])], rows=[(0, 1)]))
    assert (result.copied_out_s, result.copied_in_s) == (0.0, 5.0)
