"""The simulated engine: tokens of a hash, time of a formula, and KV mistakes that show."""

import math
from dataclasses import replace

import numpy as np
import pytest

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.simulated import SimulatedBehaviour, SimulatedEngine, StepTimeModel
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.plan import TokenLogprobs
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import (
    GREEDY,
    Job,
    generate,
    make_description,
    make_plan,
    make_simulated,
    make_start,
)

PROMPT = list(range(100, 110))


def test_tokens_are_a_function_of_prompt_index_and_seed() -> None:
    def first(prompt: list[int], sampling: SamplingParams) -> list[int]:
        return generate(make_simulated(), [Job(prompt, 8, sampling)])[0]

    sampled = SamplingParams(seed=1)
    assert first(PROMPT, GREEDY) == first(PROMPT, replace(GREEDY, seed=5))
    assert first(PROMPT, sampled) == first(PROMPT, replace(sampled, top_k=3))
    others = [first(PROMPT, sampled), first(PROMPT, replace(sampled, seed=2)), first(PROMPT[::-1], GREEDY)]
    assert len({tuple(tokens) for tokens in [*others, first(PROMPT, GREEDY)]}) == 4


def test_tokens_go_on_after_a_resume_as_without_it() -> None:
    whole = generate(make_simulated(), [Job(PROMPT, 8)])[0]
    resumed = make_start(3, [*PROMPT, *whole[:5]], range(5), prompt_len=len(PROMPT))
    result = Slots(make_simulated()).run(make_plan(1, starts=[resumed], rows=[(3, 15)]))
    assert result.tokens == [whole[5]]


def first_tokens(engine: SimulatedEngine, sampling: SamplingParams) -> set[int]:
    """The first tokens of 800 prompts."""
    tokens: list[int] = []
    for n in range(100):
        starts = [make_start(slot, [n, slot], [slot], sampling=sampling) for slot in range(8)]
        tokens += Slots(engine).run(make_plan(1, starts=starts, rows=[(slot, 2) for slot in range(8)])).tokens
    return set(tokens)


def test_end_tokens_come_only_as_asked() -> None:
    """Of the lower half of the vocabulary, all end tokens, only the lowest is ever given, and not to all."""
    eos = range(500)
    silent = make_simulated(eos=eos)
    ending = make_simulated(SimulatedBehaviour(eos_probability=0.5), eos=eos)
    assert not first_tokens(silent, GREEDY) & set(eos)
    drawn = first_tokens(ending, GREEDY)
    assert drawn & set(eos) == {0} and drawn - set(eos)
    assert not first_tokens(ending, replace(GREEDY, min_tokens=1)) & set(eos)
    assert not first_tokens(ending, replace(GREEDY, ignore_eos=True)) & set(eos)


def test_end_tokens_come_with_their_probability() -> None:
    """One token in 5 is an end: the mean length of 400 sequences is within 5 standard errors of 5."""
    engine = make_simulated(SimulatedBehaviour(eos_probability=0.2), eos=[0])
    lengths = [len(generate(engine, [Job([n, 1], 30)])[0]) for n in range(400)]
    assert abs(np.mean(lengths) - 5) < 5 * np.sqrt(20 / 400)


def test_stop_tokens_do_not_come_before_min_tokens() -> None:
    [plain] = generate(make_simulated(), [Job(PROMPT, 4)])
    sampling = replace(GREEDY, stop_token_ids=(plain[1], plain[3]), min_tokens=3)
    [tokens] = generate(make_simulated(), [Job(PROMPT, 4, sampling)])
    assert tokens == [plain[0], plain[1] + 1, plain[2], plain[3]]


def test_logprobs_for_rows_that_ask() -> None:
    starts = [make_start(0, [1], [0]), make_start(1, [1], [1], sampling=replace(GREEDY, logprobs=2))]
    result = Slots(make_simulated()).run(make_plan(1, starts=starts, rows=[(0, 1), (1, 1)]))
    token, half = result.tokens[1], math.log(0.5)
    assert result.logprobs == {1: TokenLogprobs(half, [token, token + 1], [half, 2 * half])}


def test_a_sequence_with_the_poison_token_fails_alone() -> None:
    engine = make_simulated(SimulatedBehaviour(fail_on=666))
    starts = [make_start(0, [1, 666], [0]), make_start(1, [1, 2], [1])]
    result = Slots(engine).run(make_plan(1, starts=starts, rows=[(0, 2), (1, 2)]))
    assert (result.slots, result.failures) == ([1], [(0, "the prompt holds token 666")])


def test_time_of_a_step_by_the_formula() -> None:
    """Of three rows, 6 prefill tokens and one decode over 5 past tokens: 1 + 2 * 6 + 3 * 1 + 0.5 * 12."""
    slept: list[float] = []
    times = StepTimeModel(step_s=1.0, prefill_token_s=2.0, decode_seq_s=3.0, kv_token_s=0.5)
    engine = SimulatedEngine(make_description(), frozenset(), SimulatedBehaviour(step_time=times), slept.append)
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(0, [1] * 5, [0, 1])], rows=[(0, 5)]))
    starts = [make_start(1, [1] * 2, [2]), make_start(2, [1] * 4, [3])]
    slots.run(make_plan(2, starts=starts, rows=[(0, 1), (1, 2), (2, 4)]))
    assert slept == [1 + 2 * 5 + 0.5 * 5, 1 + 2 * 6 + 3 + 0.5 * 12]


def decoding(engine: SimulatedEngine) -> Slots:
    """A session with two sequences of 10 tokens in blocks 0 to 2 and 3 to 5, first token sampled."""
    slots = Slots(engine)
    starts = [make_start(0, PROMPT, [0, 1, 2]), make_start(1, PROMPT[::-1], [3, 4, 5])]
    slots.run(make_plan(1, starts=starts, rows=[(0, 10), (1, 10)]))
    return slots


@pytest.mark.parametrize(
    ("blocks", "wrong"),
    [
        ([0, 4, 2], "device block 4 does not hold the KV of position 4 of row 0"),
        ([1, 0, 2], "device block 1 does not hold the KV of position 0 of row 0"),
        ([0, 1, 5], "device block 5 does not hold the KV of position 8 of row 0"),
        ([0, 1, 9], "device block 9 does not hold the KV of position 8 of row 0"),
    ],
    ids=["of-another-sequence", "in-another-order", "of-another-tail", "never-written"],
)
def test_a_wrong_block_table_is_detected(blocks: list[int], wrong: str) -> None:
    slots = decoding(make_simulated())
    resumed = make_start(2, [*PROMPT, 1], blocks, computed=10, prompt_len=10)
    with pytest.raises(EngineFailed, match=wrong):
        slots.run(make_plan(2, starts=[resumed], rows=[(2, 1)]))


@pytest.mark.parametrize(
    ("copies_in", "wrong"),
    [
        ([(0, 6), (2, 7), (1, 8)], "device block 7 does not hold the KV of position 4"),
        ([(0, 6), (1, 7)], "device block 8 does not hold the KV of position 8"),
        ([(0, 6), (1, 7), (3, 8)], "device block 8 does not hold the KV of position 8"),
    ],
    ids=["exchanged", "forgotten", "of-another-host-block"],
)
def test_a_wrong_copy_is_detected(copies_in: list[tuple[int, int]], wrong: str) -> None:
    slots = decoding(make_simulated())
    slots.run(make_plan(2, releases=[0], copies_out=[(0, 0), (1, 1), (2, 2)]))
    resumed = make_start(2, [*PROMPT, 1], [6, 7, 8], computed=10, prompt_len=10)
    with pytest.raises(EngineFailed, match=wrong):
        slots.run(make_plan(3, copies_in=copies_in, starts=[resumed], rows=[(2, 1)]))


def test_a_block_given_to_two_sequences_is_detected() -> None:
    slots = decoding(make_simulated())
    intruder = make_start(2, [1, 2, 3], [1])
    with pytest.raises(EngineFailed, match="device block 1 does not hold the KV of position 4 of row 0"):
        slots.run(make_plan(2, starts=[intruder], rows=[(0, 1), (2, 3)]))


def test_a_wrong_block_behind_an_unsampled_chunk_is_detected_when_the_sequence_samples() -> None:
    slots = decoding(make_simulated())
    resumed = make_start(2, [*PROMPT, 1, 2, 3, 4], [0, 4, 6, 7], computed=8, prompt_len=14)
    slots.run(make_plan(2, starts=[resumed], rows=[(2, 4)]))
    with pytest.raises(EngineFailed, match="device block 4 does not hold the KV of position 4 of row 0"):
        slots.run(make_plan(3, rows=[(2, 2)]))
