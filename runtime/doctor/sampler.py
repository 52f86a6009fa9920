"""The sampler of the GPU against the one in numpy, on random rows."""

import random
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor import sampling as on_host
from jetway.runtime.executor.base import SamplingState
from jetway.scheduler.request import SamplingParams

from .findings import NotHere

Floats = NDArray[np.float32]
NUM_BATCHES = 40  # of up to 12 rows


def random_batch(rng: random.Random) -> tuple[Floats, list[SamplingState]]:
    """Logits as a model gives them, flat, steep, or on a coarse grid, where many tie; and what is asked of each row."""
    vocab_size = rng.choice([24, 300, 3000])
    states = [_random_state(rng, vocab_size) for _ in range(rng.randint(1, 12))]
    shape = (len(states), vocab_size)
    normal = np.random.default_rng(rng.getrandbits(32)).normal(0.0, rng.choice([0.1, 2.0, 12.0]), shape)
    return (normal.round() if rng.random() < 0.3 else normal).astype(np.float32), states


def _random_state(rng: random.Random, vocab_size: int) -> SamplingState:
    tokens = [rng.randrange(vocab_size) for _ in range(rng.randint(1, 30))]
    return SamplingState(
        sequence_index=rng.randrange(4),
        content_hash=0,
        params=_random_params(rng, vocab_size),
        stop_ids=frozenset(rng.sample(range(vocab_size), rng.randint(0, 3))),
        tokens=tokens,
        prompt_len=rng.randint(1, len(tokens)),
    )


def _random_params(rng: random.Random, vocab_size: int) -> SamplingParams:
    """Every parameter is at rest, its first choice, in more than half of all rows."""

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


def compare_samplers() -> Iterator[str]:
    """On the GPU where there is one, else on the CPU. Raises NotHere without torch, AssertionError for another token."""
    from jetway.runtime.executor.tensorrt.cuda import torch_device
    from jetway.runtime.executor.tensorrt.sampling import sample_from_host

    try:
        device = torch_device()
    except ConfigError as error:
        raise NotHere(error.message) from error
    rng, num_rows = random.Random(8), 0
    for _ in range(NUM_BATCHES):
        logits, states = random_batch(rng)
        found, expected = sample_from_host(logits, states, device), on_host.sample(logits.copy(), states)
        for row, (token, wanted) in enumerate(zip(found.tokens, expected.tokens, strict=True)):
            assert token == wanted, f"{token} instead of {wanted} for {states[row].params}"
        num_rows += len(states)
    yield f"on {device}: the tokens of numpy in {num_rows} random rows"
