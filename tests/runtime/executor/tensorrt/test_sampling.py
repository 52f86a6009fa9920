"""The sampler in torch against the one in numpy, whose own tests have Hugging Face for a reference."""

import random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from jetway.runtime.doctor.sampler import random_batch
from jetway.runtime.executor import noise as numpy_noise
from jetway.runtime.executor import sampling as numpy_sampling
from jetway.runtime.executor.base import Sampled, SamplingState
from jetway.runtime.executor.tensorrt.noise import gumbel_noise, mix64
from jetway.runtime.executor.tensorrt.sampling import sample_from_host
from jetway.scheduler.request import SamplingParams

Floats = NDArray[np.float32]
NUM_CASES = 400  # of up to 12 rows


def sample(logits: Floats, states: list[SamplingState]) -> Sampled:
    return sample_from_host(logits, states, "cpu")


@pytest.mark.timeout(60)
def test_tokens_and_logprobs_are_those_of_numpy() -> None:
    num_drawn = num_logprobs = 0
    rng = random.Random(9)
    for _ in range(NUM_CASES):
        logits, states = random_batch(rng)
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
    logits, states = random_batch(random.Random(3))
    undisturbed = numpy_sampling.sample(logits.copy(), states)
    spoiled = range(0, len(states), 3)
    logits[spoiled] = bad
    sampled, expected = sample(logits, states), numpy_sampling.sample(logits.copy(), states)
    assert sampled.failures.keys() == expected.failures.keys() and list(sampled.failures) == list(spoiled)
    assert sampled.logprobs.keys() == expected.logprobs.keys()
    good = [row for row in range(len(states)) if row not in spoiled]
    assert good and [sampled.tokens[row] for row in good] == [undisturbed.tokens[row] for row in good]


def test_one_nan_is_found_and_logits_at_the_end_of_float32_do_not_overflow() -> None:
    params = SamplingParams(temperature=0.2, logprobs=1)
    states = [SamplingState(0, 0, params, frozenset(), [0], prompt_len=1) for _ in range(2)]
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
