"""Plan ahead only where that hides something worth hiding."""

from jetway.runtime.overlap import NUM_STEPS, AutoOverlap


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
