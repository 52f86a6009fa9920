"""The sampler in torch against the one in numpy, whose own tests have Hugging Face for a reference."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from jetway.runtime.executor import noise as numpy_noise
from jetway.runtime.executor import sampling as numpy_sampling
from jetway.runtime.executor.base import Sampled, SamplingState
from jetway.runtime.executor.tensorrt.noise import gumbel_noise, mix64
from jetway.runtime.executor.tensorrt.sampling import choose, report
from jetway.scheduler.request import SamplingParams

Floats = NDArray[np.float32]
NUM_CASES = 400  # of up to 12 rows


def sample(logits: Floats, states: list[SamplingState]) -> Sampled:
    return report(choose(torch.from_numpy(logits.copy()), states), states)


def random_params(rng: random.Random, vocab_size: int) -> SamplingParams:
    """Every parameter is at rest in about half of all rows."""

    def some(*values: float) -> float:
        return rng.choice([values[0], rng.choice(values)])

    return SamplingParams(
        temperature=rng.choice([0.0, 1.0, 1.0, 0.01, 0.7, 1.5, 100.0]),
        top_k=int(some(0, 1, 2, 20, vocab_size - 1, vocab_size, 5000)),
        top_p=some(1.0, 1e-6, 0.3, 0.9, 0.95, 0.999),
        min_p=some(0.0, 0.01, 0.2, 1.0),
        repetition_penalty=some(1.0, 0.5, 1.1, 3.0),
        presence_penalty=some(0.0, -1.0, 0.7),
        frequency_penalty=some(0.0, -0.3, 0.9),
        logit_bias=tuple((rng.randrange(vocab_size), rng.uniform(-5, 5)) for _ in range(int(some(0, 0, 3)))),
        logprobs=rng.choice([None, None, 0, 1, 5, 20]),
        min_tokens=int(some(0, 3)),
        seed=rng.getrandbits(64),
    )


def random_state(rng: random.Random, vocab_size: int) -> SamplingState:
    tokens = [rng.randrange(vocab_size) for _ in range(rng.randint(1, 30))]
    return SamplingState(
        sequence_index=rng.randrange(4),
        content_hash=0,
        params=random_params(rng, vocab_size),
        stop_ids=frozenset(rng.sample(range(vocab_size), rng.randint(0, 3))),
        tokens=tokens,
        prompt_len=rng.randint(1, len(tokens)),
    )


def random_logits(rng: random.Random, shape: tuple[int, int]) -> Floats:
    """As a model gives them, flat, steep, or on a coarse grid, where many tie."""
    normal = np.random.default_rng(rng.getrandbits(32)).normal(0.0, rng.choice([0.1, 2.0, 12.0]), shape)
    return (normal.round() if rng.random() < 0.3 else normal).astype(np.float32)


def random_cases() -> Iterator[tuple[Floats, list[SamplingState]]]:
    rng = random.Random(8)
    for _ in range(NUM_CASES):
        vocab_size = rng.choice([24, 300, 3000])
        states = [random_state(rng, vocab_size) for _ in range(rng.randint(1, 12))]
        yield random_logits(rng, (len(states), vocab_size)), states


@pytest.mark.timeout(60)
def test_tokens_and_logprobs_are_those_of_numpy() -> None:
    num_drawn = num_logprobs = 0
    for logits, states in random_cases():
        sampled, expected = sample(logits, states), numpy_sampling.sample(logits.copy(), states)
        assert sampled.tokens == expected.tokens
        assert sampled.failures == expected.failures == {}
        assert sampled.logprobs.keys() == expected.logprobs.keys()
        for row, scores in sampled.logprobs.items():
            assert scores.top_tokens == expected.logprobs[row].top_tokens
            assert scores.logprob == pytest.approx(expected.logprobs[row].logprob, abs=1e-5)
            assert scores.top_logprobs == pytest.approx(expected.logprobs[row].top_logprobs, abs=1e-5)
        num_drawn += sum(not state.params.greedy for state in states)
        num_logprobs += len(sampled.logprobs)
    assert num_drawn > 4 * NUM_CASES and num_logprobs > 3 * NUM_CASES


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_rows_that_are_not_finite_fail_alone_as_in_numpy(bad: float) -> None:
    rng = random.Random(3)
    states = [random_state(rng, 300) for _ in range(30)]
    logits = random_logits(rng, (30, 300))
    expected = numpy_sampling.sample(logits.copy(), states)
    spoiled = range(0, 30, 3)
    logits[spoiled] = bad
    sampled, numpys = sample(logits, states), numpy_sampling.sample(logits.copy(), states)
    assert sampled.failures.keys() == numpys.failures.keys() and list(sampled.failures) == list(spoiled)
    assert sampled.logprobs.keys() == numpys.logprobs.keys()
    good = [row for row in range(30) if row % 3]
    assert [sampled.tokens[row] for row in good] == [expected.tokens[row] for row in good]


def test_one_nan_is_found_and_logits_at_the_end_of_float32_do_not_overflow() -> None:
    states = [random_state(random.Random(seed), 3) for seed in range(2)]
    for state in states:
        state.params = SamplingParams(temperature=0.2, logprobs=1)
    lowest = np.finfo(np.float32).min
    sampled = sample(np.array([[lowest, 4.0, lowest], [1.0, 2.0, np.nan]], np.float32), states)
    assert sampled.failures == {1: "the best logit is nan"}
    assert (sampled.tokens[0], sampled.logprobs[0].logprob, sampled.logprobs[0].top_tokens) == (1, 0.0, [1])


def test_mix64_has_the_bits_of_numpy_and_noise_its_values() -> None:
    values = np.random.default_rng(5).integers(0, 2**64, 10_000, np.uint64)
    assert (mix64(torch.from_numpy(values.view(np.int64))).numpy().view(np.uint64) == numpy_noise.mix64(values)).all()
    tokens, key = np.arange(10_000), np.uint64(2**63 + 12345)
    keys = torch.full((10_000,), int(key.view(np.int64)))
    expected = numpy_noise.gumbel_noise(key, tokens)
    assert gumbel_noise(keys, torch.from_numpy(tokens)).numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
