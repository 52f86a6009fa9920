"""A step in the making: the token budget, and the plan's parallel arrays."""

from typing import NamedTuple

from .plan import DeviceBlock, Slot, Start, StepPlan
from .sequence import Sequence


class Row(NamedTuple):
    """What one row of a plan does, as its commit needs to know."""

    sequence: Sequence
    computed: int  # tokens of the sequence computed once this row is


class StepDraft:
    """Rows and starts gathered until `finish` freezes them into a StepPlan. Counts advance here, at plan time."""

    def __init__(self, budget_tokens: int, block_size: int) -> None:
        self.budget_tokens = budget_tokens
        self._block_size = block_size
        self._starts: list[Start] = []
        self._grow_slots: list[Slot] = []
        self._grow_blocks: list[DeviceBlock] = []
        self._row_slots: list[Slot] = []
        self._row_tokens: list[int] = []
        self.rows: dict[Slot, Row] = {}  # in plan order

    def chunk(self, begin: int, end: int) -> int:
        """How many of the tokens [begin, end) this step can compute: all, or up to a block's end, or none."""
        if end - begin <= self.budget_tokens:
            return end - begin
        reach = begin + self.budget_tokens
        return max(0, reach - reach % self._block_size - begin)

    def start(self, sequence: Sequence, slot: Slot) -> None:
        self._starts.append(
            Start(
                slot=slot,
                sequence_id=sequence.id,
                tokens=list(sequence.tokens),
                prompt_len=sequence.prompt_len,
                computed=sequence.computed,
                blocks=list(sequence.blocks),
                sampling=sequence.request.sampling,
            )
        )

    def grow(self, sequence: Sequence, slot: Slot, block: DeviceBlock) -> None:
        sequence.blocks.append(block)
        self._grow_slots.append(slot)
        self._grow_blocks.append(block)

    def compute(self, sequence: Sequence, slot: Slot, num_tokens: int) -> None:
        """Plan a row. It samples exactly when it closes the gap."""
        self._row_slots.append(slot)
        self._row_tokens.append(num_tokens)
        self.budget_tokens -= num_tokens
        sequence.computed += num_tokens
        sequence.in_flight += 1
        self.rows[slot] = Row(sequence, sequence.computed)
        if sequence.gap == 0:
            sequence.unresolved += 1

    def finish(self, step: int, releases: list[Slot]) -> StepPlan:
        return StepPlan(
            step=step,
            releases=releases,
            starts=self._starts,
            grow_slots=self._grow_slots,
            grow_blocks=self._grow_blocks,
            row_slots=self._row_slots,
            row_tokens=self._row_tokens,
        )
