"""The fitted model against the coefficients that made the times."""

import random

import pytest

from jetway.scheduler.estimate import CopyRate, StepTimeModel, StepWork


def random_work(rng: random.Random) -> StepWork:
    return StepWork(
        num_prefill_tokens=rng.choice([0, 0, rng.randrange(512)]),
        num_decodes=rng.randrange(64),
        num_context_tokens=rng.randrange(50_000),
    )


def true_s(work: StepWork) -> float:
    return 5e-3 + 1e-4 * work.num_prefill_tokens + 2e-4 * work.num_decodes + 1e-7 * work.num_context_tokens


def test_it_finds_the_coefficients_under_noise() -> None:
    rng = random.Random(1)
    model = StepTimeModel()
    for _ in range(2000):
        work = random_work(rng)
        model.observe(work, true_s(work) * rng.uniform(0.9, 1.1))
    for _ in range(50):
        work = random_work(rng)
        assert model.predict_s(work) == pytest.approx(true_s(work), rel=0.08)
    assert model.prefill_s(100) == pytest.approx(1e-2, rel=0.08)


def test_it_follows_a_machine_that_changes() -> None:
    rng = random.Random(2)
    model = StepTimeModel()
    for factor in (1.0, 3.0):
        for _ in range(3000):
            work = random_work(rng)
            model.observe(work, factor * true_s(work))
    work = StepWork(num_prefill_tokens=200, num_decodes=30, num_context_tokens=20_000)
    assert model.predict_s(work) == pytest.approx(3 * true_s(work), rel=0.02)


def test_it_never_promises_less_than_nothing() -> None:
    model = StepTimeModel()
    model.observe(StepWork(num_prefill_tokens=0, num_decodes=1, num_context_tokens=0), 0.01)
    model.observe(StepWork(num_prefill_tokens=500, num_decodes=1, num_context_tokens=0), 0.001)
    assert model.prefill_s(100) >= 0.0
    assert model.predict_s(StepWork(num_prefill_tokens=500, num_decodes=1, num_context_tokens=0)) >= 0.0


def test_the_copy_rate_is_unknown_then_that_of_the_recent_copies() -> None:
    rate = CopyRate()
    assert rate.copy_s(10) == 0.0
    rate.observe(0, 0.0)
    for _ in range(100):
        rate.observe(10, 10 * 1e-3)
    assert rate.copy_s(5) == pytest.approx(5e-3)
    for _ in range(100):
        rate.observe(10, 10 * 4e-3)
    assert rate.copy_s(5) == pytest.approx(20e-3, rel=0.01)


def test_what_is_never_seen_does_not_wind_up() -> None:
    """A hundred thousand steps of decodes say nothing of prefills; what was known of them stays."""
    rng = random.Random(4)
    model = StepTimeModel()
    for _ in range(500):
        work = random_work(rng)
        model.observe(work, true_s(work))
    for step in range(100_000):
        work = StepWork(num_prefill_tokens=0, num_decodes=32, num_context_tokens=10_000 + step % 1000)
        model.observe(work, true_s(work) * rng.uniform(0.99, 1.01))
    assert model.prefill_s(100) == pytest.approx(1e-2, rel=0.1)
