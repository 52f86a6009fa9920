"""What every Engine must do, run against each: tokens, bits, copies and sharing, through Slots."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import GREEDY, Job, generate, make_plan, make_start

pytestmark = pytest.mark.timeout(120)  # the first test of each real engine loads it

# The log-probabilities of the best twenty stand for the bits of all logits.
BITS = SamplingParams(temperature=0.0, logprobs=20)
DRAWN = SamplingParams(temperature=0.8, top_p=0.95, seed=11)


def prompt_of(num_tokens: int, *, first: int) -> list[int]:
    return [(first + 7 * i) % 250 + 3 for i in range(num_tokens)]


def run(slots: Slots, plan: StepPlan) -> StepResult:
    """The plan's result without the time it took."""
    return replace(slots.run(plan), elapsed_s=0.0, copied_out_s=0.0, copied_in_s=0.0)


def decodes(steps: Sequence[int], *slots: int) -> list[StepPlan]:
    return [make_plan(step, rows=[(slot, 1) for slot in slots]) for step in steps]


def test_describes_pools_and_limits(engine: Engine) -> None:
    description = engine.describe()
    assert description.num_device_blocks >= 64 and description.num_host_blocks == 8 and description.block_bytes > 0
    assert description.max_num_batched_tokens >= description.max_num_seqs + description.block_size
    assert {"copy", "logprobs"} <= set(description.capabilities)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_tokens_depend_neither_on_the_batch_nor_on_chunks(engine: Engine, sampling: SamplingParams) -> None:
    size = engine.describe().block_size
    lengths = [1, size - 1, size, 2 * size + size // 2]
    jobs = [Job(prompt_of(length, first=length), 6, sampling) for length in lengths]
    alone = [generate(engine, [job])[0] for job in jobs]
    assert generate(engine, jobs) == alone
    assert generate(engine, jobs, chunk_tokens=size) == alone
    assert generate(engine, jobs, chunk_tokens=2 * size) == alone


def test_the_same_plans_give_the_same_bits(engine: Engine) -> None:
    size = engine.describe().block_size
    starts = [
        make_start(0, prompt_of(size + 3, first=1), [4, 9, 6], sampling=BITS),
        make_start(3, prompt_of(2, first=5), [2, 1], sampling=replace(DRAWN, logprobs=20)),
    ]
    plans = [make_plan(1, starts=starts, rows=[(0, size), (3, 2)]), make_plan(2, rows=[(0, 3), (3, 1)])]
    plans += decodes([3, 4], 3, 0)
    first, second = Slots(engine), Slots(engine)
    results = [run(first, plan) for plan in plans]
    assert [run(second, plan) for plan in plans] == results
    assert [list(result.slots) for result in results] == [[3], [0, 3], [3, 0], [3, 0]]
    assert all(len(logprobs.top_tokens) == 20 for result in results for logprobs in result.logprobs.values())


def test_blocks_copied_out_and_into_other_blocks_restore_the_sequence_exactly(engine: Engine) -> None:
    """Swapped out, its device blocks overwritten by another sequence, swapped in elsewhere: the same bits follow."""
    size = engine.describe().block_size
    prompt = prompt_of(2 * size + size // 2, first=3)
    begin = [make_plan(1, starts=[make_start(0, prompt, [0, 1, 2, 3], sampling=BITS)], rows=[(0, len(prompt))])]
    begin += decodes([2, 3], 0)
    undisturbed = Slots(engine)
    results = [run(undisturbed, plan) for plan in [*begin, *decodes([4, 5], 0)]]

    slots = Slots(engine)
    tokens = [*prompt, *(run(slots, plan).tokens[0] for plan in begin)]
    other = make_start(0, prompt_of(4 * size, first=50), [2, 3, 0, 1])
    copies_out = [(0, 3), (1, 7), (2, 0), (3, 4)]
    run(slots, make_plan(4, releases=[0], copies_out=copies_out, starts=[other], rows=[(0, 4 * size)]))
    resumed = make_start(5, tokens, [7, 5, 1, 2], computed=len(tokens) - 1, prompt_len=len(prompt), sampling=BITS)
    copies_in = [(0, 1), (3, 7), (4, 2), (7, 5)]
    after = [run(slots, make_plan(5, releases=[0], copies_in=copies_in, starts=[resumed], rows=[(5, 1)]))]
    after += [run(slots, plan) for plan in decodes([6], 5)]
    assert [result.tokens for result in after] == [result.tokens for result in results[3:]]
    assert [result.logprobs for result in after] == [result.logprobs for result in results[3:]]


def test_sequences_share_full_blocks(engine: Engine) -> None:
    """Two prompts with two blocks in common: the second one starts after them, on the first one's blocks."""
    size = engine.describe().block_size
    common = prompt_of(2 * size, first=9)
    jobs = [Job([*common, 20, 21], 3), Job([*common, 30], 3)]
    expected = [generate(engine, [job])[0] for job in jobs]
    slots = Slots(engine)
    owner = make_start(0, jobs[0].prompt, [6, 3, 8])
    sharer = make_start(1, jobs[1].prompt, [6, 3, 5], computed=2 * size)
    plans = [
        make_plan(1, starts=[owner], rows=[(0, 2 * size + 2)]),
        make_plan(2, starts=[sharer], rows=[(0, 1), (1, 1)]),
        *decodes([3], 1, 0),
        make_plan(4, releases=[0], rows=[(1, 1)]),
    ]
    outputs: dict[int, list[int]] = {0: [], 1: []}
    for plan in plans:
        result = run(slots, plan)
        for slot, token in zip(result.slots, result.tokens, strict=True):
            outputs[slot].append(token)
    assert [outputs[0], outputs[1]] == expected


def test_blocks_and_slot_are_used_again_in_the_plan_that_frees_them(engine: Engine) -> None:
    size = engine.describe().block_size
    job = Job(prompt_of(size + 2, first=70), 1)
    slots = Slots(engine)
    run(slots, make_plan(1, starts=[make_start(0, prompt_of(2 * size, first=1), [5, 6])], rows=[(0, 2 * size)]))
    plan = make_plan(2, releases=[0], starts=[make_start(0, job.prompt, [6, 5])], rows=[(0, size + 2)])
    assert [run(slots, plan).tokens] == generate(engine, [job])


def test_logprobs_rank_the_greedy_token_first(engine: Engine) -> None:
    starts = [make_start(0, [5, 6, 7], [0], sampling=replace(BITS, logprobs=5)), make_start(1, [5], [1])]
    result = run(Slots(engine), make_plan(1, starts=starts, rows=[(1, 1), (0, 3)]))
    assert list(result.logprobs) == [1]
    logprobs = result.logprobs[1]
    assert (logprobs.top_tokens[0], logprobs.top_logprobs[0]) == (result.tokens[1], logprobs.logprob)
    assert list(logprobs.top_logprobs) == sorted(logprobs.top_logprobs, reverse=True) and logprobs.logprob < 0
