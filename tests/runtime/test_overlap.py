"""Plan ahead only where that hides something worth hiding."""

import pytest

from jetway.runtime.errors import ConfigError
from jetway.runtime.overlap import NUM_STEPS, AutoOverlap, make_overlap, num_micro_batches


def see(overlap: AutoOverlap, *, gap_s: float, elapsed_s: float) -> int:
    """The depth after as many steps as a decision takes."""
    for _ in range(NUM_STEPS):
        overlap.observe(gap_s=gap_s, elapsed_s=elapsed_s)
    return overlap.depth


def test_a_gap_over_half_a_percent_of_the_median_step_is_hidden() -> None:
    overlap = AutoOverlap()
    assert overlap.depth == 0
    assert see(overlap, gap_s=0.0001, elapsed_s=0.025) == 0
    assert see(overlap, gap_s=0.0002, elapsed_s=0.025) == 1


def test_a_hidden_gap_is_remembered_until_steps_are_long() -> None:
    overlap = AutoOverlap()
    see(overlap, gap_s=0.001, elapsed_s=0.020)
    assert see(overlap, gap_s=0.0, elapsed_s=0.020) == 1
    assert see(overlap, gap_s=0.0, elapsed_s=0.300) == 0


def test_a_few_slow_steps_decide_nothing() -> None:
    overlap = AutoOverlap()
    for gap_s in [1.0] * (NUM_STEPS // 2 - 1) + [0.0] * (NUM_STEPS // 2 + 1):
        overlap.observe(gap_s=gap_s, elapsed_s=0.020)
    assert overlap.depth == 0


@pytest.mark.parametrize(
    ("setting", "num_stages", "depth", "micro_batches"),
    [("auto", 1, 0, 1), ("1", 1, 1, 1), ("auto", 4, 4, 4), ("0", 4, 0, 1), ("2", 4, 2, 3)],
)
def test_a_pipeline_has_a_plan_a_stage_and_one_that_waits(
    setting: str, num_stages: int, depth: int, micro_batches: int
) -> None:
    assert make_overlap(setting, num_stages).depth == depth
    assert num_micro_batches(setting, num_stages) == micro_batches


@pytest.mark.parametrize(("setting", "num_stages"), [("2", 1), ("5", 4)])
def test_more_plans_ahead_than_stages_are_refused(setting: str, num_stages: int) -> None:
    with pytest.raises(ConfigError, match=f"overlap is {setting}; an engine of {num_stages} stages has use for"):
        make_overlap(setting, num_stages)
