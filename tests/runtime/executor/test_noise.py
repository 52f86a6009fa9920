"""Noise is splitmix64, Gumbel-shaped, and a function of its key alone."""

import numpy as np
import torch

from jetway.runtime.executor.base import SamplingState
from jetway.runtime.executor.noise import GAMMA, gumbel_noise, mix64, noise_keys
from jetway.scheduler.request import SamplingParams


def make_state(*, seed: int = 0, index: int = 0, position: int = 1) -> SamplingState:
    return SamplingState(index, 0, SamplingParams(seed=seed), frozenset(), [0] * position, 1)


def test_mix64_gives_the_published_splitmix64_outputs() -> None:
    """The first five outputs of seed 1234567, as published with the reference implementation."""
    numbers = np.arange(1, 6, dtype=np.uint64) * GAMMA + np.uint64(1234567)
    expected = [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip
    assert mix64(numbers).tolist() == expected


def test_each_part_of_the_key_counts() -> None:
    states = [make_state(seed=s, index=i, position=p) for s in (0, 1, 2**64 - 1) for i in (0, 1) for p in (1, 2, 3)]
    assert len(set(noise_keys(states).tolist())) == len(states)


def test_a_key_does_not_depend_on_its_neighbours() -> None:
    states = [make_state(seed=s) for s in range(5)]
    alone = [noise_keys([state])[0] for state in states]
    assert noise_keys(states[::-1]).tolist() == alone[::-1]
    assert noise_keys([]).tolist() == []


def test_noise_of_a_token_does_not_depend_on_the_other_tokens() -> None:
    everything = gumbel_noise(np.uint64(99), np.arange(1000))
    some = np.array([998, 3, 500])
    assert gumbel_noise(np.uint64(99), some).tolist() == everything[some].tolist()


def test_noise_is_gumbel_distributed() -> None:
    """Equal-probability bins of the Gumbel distribution, by chi-square."""
    num_samples, num_bins = 200_000, 50
    noise = gumbel_noise(np.uint64(7), np.arange(num_samples))
    edges = -np.log(-np.log(np.arange(1, num_bins) / num_bins))
    counts = np.bincount(np.searchsorted(edges, noise), minlength=num_bins)
    statistic = ((counts - num_samples / num_bins) ** 2 / (num_samples / num_bins)).sum()
    assert chi_square_p_value(statistic, num_bins - 1) > 0.001


def chi_square_p_value(statistic: float, degrees: int) -> float:
    return float(torch.special.gammaincc(torch.tensor(degrees / 2.0), torch.tensor(statistic / 2.0)))
