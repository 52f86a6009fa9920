"""Short ways to write plans, a small simulated engine, and the least that can drive Slots to the end of a job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.simulated import PLAIN, SimulatedBehaviour, SimulatedEngine
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.plan import DeviceBlock, EngineDescription, HostBlock, Slot, Start, StepPlan
from jetway.scheduler.request import SamplingParams, SequenceId

GREEDY = SamplingParams(temperature=0.0)
Pairs = Iterable[tuple[int, int]]


def make_description(
    *, num_device_blocks: int = 64, num_host_blocks: int = 8, max_num_seqs: int = 8, max_num_batched_tokens: int = 64
) -> EngineDescription:
    """Blocks of 4 tokens, sequences of at most 40."""
    return EngineDescription(
        engine_id="simulated-for-tests",
        kind="simulated",
        version="0",
        block_size=4,
        num_device_blocks=num_device_blocks,
        num_host_blocks=num_host_blocks,
        block_bytes=32,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_seq_len=40,
        vocab_size=1000,
        capabilities=("copy", "logprobs"),
    )


def make_simulated(
    behaviour: SimulatedBehaviour = PLAIN, *, eos: Iterable[int] = (), num_device_blocks: int = 64
) -> SimulatedEngine:
    return SimulatedEngine(make_description(num_device_blocks=num_device_blocks), frozenset(eos), behaviour)


def make_start(
    slot: int,
    tokens: Sequence[int],
    blocks: Iterable[int],
    *,
    computed: int = 0,
    prompt_len: int | None = None,
    sampling: SamplingParams = GREEDY,
) -> Start:
    return Start(
        slot=Slot(slot),
        sequence_id=SequenceId(f"request-{slot}", 0),
        tokens=tokens,
        prompt_len=len(tokens) if prompt_len is None else prompt_len,
        computed=computed,
        blocks=[DeviceBlock(block) for block in blocks],
        sampling=sampling,
    )


def make_plan(
    step: int,
    *,
    releases: Iterable[int] = (),
    copies_out: Pairs = (),
    copies_in: Pairs = (),
    starts: Sequence[Start] = (),
    grow: Pairs = (),
    rows: Pairs = (),
) -> StepPlan:
    """`grow` is (slot, block), `rows` (slot, tokens), copies are (from, to)."""
    grow, rows = list(grow), list(rows)
    return StepPlan(
        step=step,
        releases=[Slot(slot) for slot in releases],
        copies_out=[(DeviceBlock(device), HostBlock(host)) for device, host in copies_out],
        copies_in=[(HostBlock(host), DeviceBlock(device)) for host, device in copies_in],
        starts=starts,
        grow_slots=[Slot(slot) for slot, _ in grow],
        grow_blocks=[DeviceBlock(block) for _, block in grow],
        row_slots=[Slot(slot) for slot, _ in rows],
        row_tokens=[tokens for _, tokens in rows],
    )


@dataclass(frozen=True, slots=True)
class Job:
    prompt: Sequence[int]
    num_tokens: int
    sampling: SamplingParams = GREEDY


def generate(engine: Engine, jobs: Sequence[Job], *, chunk_tokens: int = 1 << 20) -> list[list[int]]:
    """Run all jobs at once in a new session, prefill in chunks within the step's budget; the tokens of each."""
    budget, block_size = engine.describe().max_num_batched_tokens, engine.describe().block_size
    slots, step, outputs = Slots(engine), 0, [list[int]() for _ in jobs]
    starts: list[Start] = []
    for slot, job in enumerate(jobs):
        first = sum(len(start.blocks) for start in starts)
        needed = -(-(len(job.prompt) + job.num_tokens) // block_size)
        starts.append(make_start(slot, job.prompt, range(first, first + needed), sampling=job.sampling))
    gaps = {slot: len(job.prompt) for slot, job in enumerate(jobs)}  # known tokens not yet computed
    while gaps:
        rows, left = dict[int, int](), budget
        for slot, gap in gaps.items():
            if count := min(gap, left, chunk_tokens):
                rows[slot], gaps[slot], left = count, gap - count, left - count
        step += 1
        result = slots.run(make_plan(step, starts=starts if step == 1 else (), rows=rows.items()))
        for slot, token, stopped in zip(result.slots, result.tokens, result.stopped, strict=True):
            outputs[slot].append(token)
            gaps[slot] = 1
            if stopped or len(outputs[slot]) == jobs[slot].num_tokens:
                del gaps[slot]
    return outputs
