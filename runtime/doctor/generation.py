"""An engine made to generate, plan by plan: the least that shows whether its tokens and its swap are right."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.counts import blocks_of
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.plan import DeviceBlock, HostBlock, Slot, Start, StepPlan, StepResult, TokenLogprobs
from jetway.scheduler.request import SamplingParams, SequenceId

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True, logprobs=2)


@dataclass(slots=True)
class Generated:
    """A prompt, the blocks it lives in, and what it gave."""

    prompt: Sequence[int]
    blocks: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)


class Generation:
    """A session of plans over an engine; sequences are known by their slots."""

    def __init__(self, engine: Engine) -> None:
        self.description = engine.describe()
        self.sequences: dict[int, Generated] = {}
        self._slots = Slots(engine)
        self._num_steps = 0

    def prompt(self, num_tokens: int, seed: int) -> list[int]:
        """Random tokens."""
        rng = random.Random(seed)
        return [rng.randrange(self.description.vocab_size) for _ in range(num_tokens)]

    def blocks(self, num_tokens: int, first: int) -> list[int]:
        """Neighbours that hold so many tokens."""
        return list(range(first, first + blocks_of(num_tokens, self.description.block_size)))

    def start(self, slot: int, prompt: Sequence[int], blocks: Sequence[int]) -> StepResult:
        """Compute a prompt in one step, and its first token."""
        self.sequences[slot] = Generated(prompt, blocks)
        return self._run(_plan(starts=[self._start(slot, computed=0)], rows={slot: len(prompt)}))

    def decode(self, slots: Iterable[int]) -> StepResult:
        """One more token of each."""
        return self._run(_plan(rows=dict.fromkeys(slots, 1)))

    def displace(self, slot: int, host_blocks: Sequence[int], newcomer: int, prompt: Sequence[int]) -> StepResult:
        """Move a sequence to the host; in the same step the newcomer's prompt is computed in its blocks."""
        blocks = self.sequences[slot].blocks
        self.sequences[newcomer] = Generated(prompt, blocks)
        copies = [(DeviceBlock(device), HostBlock(host)) for device, host in zip(blocks, host_blocks, strict=True)]
        plan = _plan(starts=[self._start(newcomer, computed=0)], rows={newcomer: len(prompt)})
        return self._run(replace(plan, releases=[Slot(slot)], copies_out=copies))

    def resume(self, slot: int, host_blocks: Sequence[int], blocks: Sequence[int]) -> StepResult:
        """Move it back, into other blocks, and compute its next token."""
        sequence = self.sequences[slot]
        sequence.blocks = blocks
        computed = len(sequence.prompt) + len(sequence.tokens) - 1
        copies = [(HostBlock(host), DeviceBlock(device)) for host, device in zip(host_blocks, blocks, strict=True)]
        return self._run(replace(_plan([self._start(slot, computed=computed)], {slot: 1}), copies_in=copies))

    def _start(self, slot: int, *, computed: int) -> Start:
        sequence = self.sequences[slot]
        return Start(
            slot=Slot(slot),
            sequence_id=SequenceId(f"doctor-{slot}", 0),
            tokens=[*sequence.prompt, *sequence.tokens],
            prompt_len=len(sequence.prompt),
            computed=computed,
            blocks=[DeviceBlock(block) for block in sequence.blocks],
            sampling=GREEDY,
        )

    def _run(self, plan: StepPlan) -> StepResult:
        """Do the plan and keep what it gave. Raises AssertionError where a row gave nothing."""
        self._num_steps += 1
        result = self._slots.run(replace(plan, step=self._num_steps))
        assert not result.failures, f"a row failed: {result.failures[0][1]}"
        for i, (slot, token) in enumerate(zip(result.slots, result.tokens, strict=True)):
            self.sequences[slot].tokens.append(token)
            self.sequences[slot].logprobs.append(result.logprobs[i])
        return result


def _plan(starts: Sequence[Start] = (), rows: dict[int, int] | None = None) -> StepPlan:
    rows = rows or {}
    return StepPlan(step=1, starts=starts, row_slots=[Slot(slot) for slot in rows], row_tokens=list(rows.values()))
