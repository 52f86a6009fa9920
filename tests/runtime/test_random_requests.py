"""The whole stack over its real protocols: what runs beside a request never changes its answer."""

import asyncio
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jetway.client import Completion
from tests.support.stack import ENGINE, TENANTS, TOKENIZER, Stack, stack
from tests.support.tokenizers import write_engine

NUM_REQUESTS = 100


class Asked(NamedTuple):
    tenant: str
    params: dict[str, Any]


def random_request(rng: random.Random) -> Asked:
    """Of at most 40 tokens, which is the longest sequence; half of them share their first tokens with others."""
    prefix = [random.Random(rng.randrange(3)).randrange(ENGINE.vocab_size) for _ in range(rng.choice((0, 0, 4, 8, 13)))]
    own = [rng.randrange(ENGINE.vocab_size) for _ in range(rng.randint(1, 10))]
    max_tokens = rng.randint(1, 16)
    params: dict[str, Any] = {
        "token_ids": prefix + own,
        "n": rng.choice((1, 1, 1, 2, 3)),
        "max_tokens": max_tokens,
        "seed": rng.randrange(2**64),
        "temperature": rng.choice((0.0, 0.7, 1.0, 2.0)),
        "top_k": rng.choice((0, 1, 5)),
        "top_p": rng.choice((1.0, 0.9, 0.25)),
        "min_p": rng.choice((0.0, 0.1)),
        "repetition_penalty": rng.choice((1.0, 1.5, 0.01)),
        "presence_penalty": rng.uniform(-2, 2),
        "min_tokens": min(rng.choice((0, 3)), max_tokens),
        "ignore_eos": rng.choice((True, False)),
        "stop": rng.choice(((), ("e", "Z"), tuple("abcdefgh"))),
        "stop_token_ids": rng.choice(((), tuple(rng.sample(range(ENGINE.vocab_size), 20)))),
        "priority": rng.choice((-2, -1, 0, 0, 1, 5)),
    }
    return Asked(rng.choice(TENANTS), params)


async def generate(running: Stack, asked: Asked) -> Completion:
    return await running.clients[asked.tenant].generate(**asked.params)


@pytest.mark.parametrize(("seed", "depth"), [(1, 0), (2, 1)])
async def test_requests_together_answer_as_one_at_a_time(tmp_path: Path, seed: int, depth: int) -> None:
    """Whether or not plans go out before the results of those before them."""
    rng = random.Random(seed)
    requests = [random_request(rng) for _ in range(NUM_REQUESTS)]
    engine = write_engine(tmp_path, TOKENIZER)

    async with stack(engine, 0) as running:
        alone = [(await generate(running, asked)).choices for asked in requests]
        assert await running.num_preemptions() == 0
    async with stack(engine, depth) as running:
        together = await asyncio.gather(*(generate(running, asked) for asked in requests))
        assert await running.num_preemptions() > 0

    assert [completion.choices for completion in together] == alone
    assert {choice.finish_reason for choices in alone for choice in choices} == {"stop", "length"}
