"""The sampler against Hugging Face's logits processors, against softmax, and against itself in other batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.generation import logits_process as hf

from jetway.runtime.executor.base import SamplingState
from jetway.runtime.executor.noise import gumbel_noise, noise_keys
from jetway.runtime.executor.sampling import sample
from jetway.scheduler.plan import TokenLogprobs
from jetway.scheduler.request import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def make_state(
    params: SamplingParams, *, tokens: tuple[int, ...] = (1, 2), prompt_len: int = 2, stop_ids: tuple[int, ...] = ()
) -> SamplingState:
    return SamplingState(0, 0, params, frozenset(stop_ids), list(tokens), prompt_len)


def make_logits(*shape: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0.0, 2.0, shape).astype(np.float32)


def hf_processed(row: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float32]:
    """The row after temperature, top-k, top-p and min-p as `generate` applies them; -inf where truncated."""
    chain: list[hf.LogitsProcessor] = [hf.TemperatureLogitsWarper(params.temperature)]
    chain += [hf.TopKLogitsWarper(params.top_k)] if params.top_k else []
    chain += [hf.TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []
    chain += [hf.MinPLogitsWarper(params.min_p)] if params.min_p else []
    scores = torch.tensor(row)[None]
    for processor in chain:
        scores = processor(torch.tensor([[0]]), scores)
    return scores[0].numpy()


TRUNCATIONS = [
    SamplingParams(),
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=2.0),
    SamplingParams(top_k=4),
    SamplingParams(top_p=0.7),
    SamplingParams(min_p=0.1),
    SamplingParams(temperature=1.5, top_k=6, top_p=0.8, min_p=0.05),
]


@pytest.mark.parametrize("params", TRUNCATIONS, ids=repr)
def test_draws_follow_the_distribution_of_hugging_face(params: SamplingParams) -> None:
    """4,000 seeds on 12 tokens: the truncated set exactly, the frequencies by chi-square."""
    num_draws, row = 4000, make_logits(12)
    states = [make_state(replace(params, seed=seed)) for seed in range(num_draws)]
    counts = np.bincount(sample(np.tile(row, (num_draws, 1)), states).tokens, minlength=12)
    expected = torch.softmax(torch.tensor(hf_processed(row, params)), -1).numpy() * num_draws
    kept = expected > 0
    assert counts[~kept].sum() == 0
    statistic = float(((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    p_value = torch.special.gammaincc(torch.tensor((kept.sum() - 1) / 2.0), torch.tensor(statistic / 2.0))
    assert p_value > 0.001


@pytest.mark.parametrize(
    "params",
    [
        *TRUNCATIONS,
        SamplingParams(top_p=0.999),  # of flat logits: thousands of tokens
        SamplingParams(temperature=100.0, top_p=0.9),
        SamplingParams(temperature=0.01, top_p=0.9),
        SamplingParams(top_k=2999, min_p=0.01),
        SamplingParams(top_k=5000),
    ],
    ids=repr,
)
def test_draws_are_the_best_of_the_kept_logits_plus_noise(params: SamplingParams) -> None:
    """Truncation moves no token's noise: the draw is the argmax over what Hugging Face keeps."""
    logits = make_logits(30, 3000)
    states = [make_state(replace(params, seed=seed)) for seed in range(30)]
    noise = [gumbel_noise(key, np.arange(3000)) for key in noise_keys(states)]
    expected = [int((hf_processed(row, params) + n).argmax()) for row, n in zip(logits, noise, strict=True)]
    assert sample(logits, states).tokens == expected


def test_a_draw_depends_on_its_own_key_alone() -> None:
    """Alone, in another order, beside greedy rows: the same tokens."""
    logits = make_logits(8, 500)
    params = [SamplingParams(seed=i, top_p=0.9) if i % 2 else SamplingParams(seed=i, top_k=3 * i) for i in range(7)]
    states = [make_state(p, tokens=(1,) * (i + 1), prompt_len=1) for i, p in enumerate([*params, GREEDY])]
    alone = [sample(logits[i : i + 1].copy(), [states[i]]).tokens[0] for i in range(8)]
    assert sample(logits[::-1].copy(), states[::-1]).tokens == alone[::-1]


def test_greedy_is_argmax_and_ties_go_to_the_lowest_id() -> None:
    logits = np.array([[0.0, 3.0, 3.0, 1.0], [5.0, 0.0, 0.0, 0.0]], np.float32)
    assert sample(logits, [make_state(GREEDY)] * 2).tokens == [1, 0]


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(top_p=1e-6), {1}),
        (SamplingParams(top_k=1), {1, 2}),
        (SamplingParams(min_p=1.0), {1, 2}),
        (SamplingParams(top_k=3), {0, 1, 2, 3}),
        (SamplingParams(top_p=0.75), {0, 1, 2}),
        (SamplingParams(top_k=9), {0, 1, 2, 3, 4}),
        (SamplingParams(temperature=1e-30), {1, 2}),
    ],
    ids=repr,
)
def test_ties(params: SamplingParams, kept: set[int]) -> None:
    """Probabilities 1/6, 1/3, 1/3, 1/6, 0: top-k and min-p keep ties, top-p takes the lowest ids first."""
    row = np.log(np.array([1.0, 2.0, 2.0, 1.0, 1e-3], np.float32))
    states = [make_state(replace(params, seed=seed)) for seed in range(4000)]
    assert set(sample(np.tile(row, (4000, 1)), states).tokens) == kept


def test_repetition_penalty_is_hugging_faces() -> None:
    """Prompt and output are penalised, once however often a token occurs; greedy sees the result."""
    tokens = (3, 3, 7, 9, 9, 9)
    row = make_logits(20)
    expected = hf.RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([tokens]), torch.tensor(row)[None])[0]
    state = make_state(SamplingParams(temperature=0.0, repetition_penalty=1.7, logprobs=20), tokens=tokens)
    assert logprobs_of(row, state) == pytest.approx(torch.log_softmax(expected, -1).numpy(), abs=1e-5)


def test_presence_and_frequency_penalties_count_the_output_only() -> None:
    """OpenAI's formula: logit - count * frequency - (count > 0) * presence; prompt tokens 5, 6 do not count."""
    row = make_logits(10)
    expected = row.copy()
    expected[7] -= 0.5 + 3 * 0.25
    expected[5] -= 0.5 + 1 * 0.25
    params = SamplingParams(temperature=0.0, presence_penalty=0.5, frequency_penalty=0.25, logprobs=20)
    state = make_state(params, tokens=(5, 6, 7, 5, 7, 7), prompt_len=2)
    assert logprobs_of(row, state) == pytest.approx(torch.log_softmax(torch.tensor(expected), -1).numpy(), abs=1e-5)


def test_logit_bias_is_added() -> None:
    logits = np.array([[0.0, 1.0, 2.0]], np.float32)
    biased = make_state(SamplingParams(temperature=0.0, logit_bias=((0, 5.0), (2, -5.0))))
    assert sample(logits, [biased]).tokens == [0]


@pytest.mark.parametrize(("num_generated", "token"), [(0, 1), (1, 1), (2, 2)])
def test_min_tokens_masks_stop_ids_until_reached(num_generated: int, token: int) -> None:
    params = SamplingParams(temperature=0.0, min_tokens=2)
    state = make_state(params, tokens=(1, 1, *[0] * num_generated), prompt_len=2, stop_ids=(2,))
    assert sample(np.array([[0.0, 1.0, 2.0]], np.float32), [state]).tokens == [token]


def test_logprobs_are_taken_before_temperature_and_truncation() -> None:
    row = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    states = [
        make_state(SamplingParams(temperature=0.0)),
        make_state(SamplingParams(temperature=0.1, top_k=1, logprobs=3)),
        make_state(SamplingParams(temperature=0.0, logprobs=0)),
    ]
    sampled = sample(np.tile(row, (3, 1)), states)
    assert list(sampled.logprobs) == [1, 2]
    assert sampled.logprobs[1].logprob == pytest.approx(np.log(0.4), abs=1e-6)
    assert sampled.logprobs[1].top_tokens == [3, 2, 1]
    assert sampled.logprobs[1].top_logprobs == pytest.approx(np.log([0.4, 0.3, 0.2]), abs=1e-6)
    assert sampled.logprobs[2] == TokenLogprobs(sampled.logprobs[1].logprob, [], [])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(logprobs=2)], ids=["greedy", "drawn"])
def test_a_row_that_is_not_finite_fails_alone(bad: float, params: SamplingParams) -> None:
    logits = make_logits(3, 50)
    good = sample(logits[[0, 2]].copy(), [make_state(params)] * 2)
    logits[1, 20] = bad
    sampled = sample(logits, [make_state(params)] * 3)
    assert sampled.failures == {1: f"the best logit is {bad}"}
    assert [sampled.tokens[0], sampled.tokens[2]] == good.tokens
    assert sampled.logprobs == {2 * i: entry for i, entry in good.logprobs.items()}


def test_logits_at_the_end_of_f32_do_not_overflow() -> None:
    lowest = np.finfo(np.float32).min
    logits = np.array([[lowest, 4.0, lowest]], np.float32)
    sampled = sample(logits, [make_state(SamplingParams(temperature=0.2, logprobs=1))])
    assert sampled.tokens == [1] and sampled.logprobs == {0: TokenLogprobs(0.0, [1], [0.0])}


def test_no_rows_sample_nothing() -> None:
    sampled = sample(np.empty((0, 9), np.float32), [])
    assert (sampled.tokens, sampled.logprobs, sampled.failures) == ([], {}, {})


def logprobs_of(row: NDArray[np.float32], state: SamplingState) -> NDArray[np.float32]:
    """The log-probability that `sample` reports for each token, by token id."""
    reported = sample(row[None].copy(), [state]).logprobs[0]
    by_id = np.empty(len(row), np.float32)
    by_id[list(reported.top_tokens)] = reported.top_logprobs
    return by_id
