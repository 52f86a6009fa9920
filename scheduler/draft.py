"""A step in the making: the token budget, and what will become the plan's parallel arrays."""

from dataclasses import dataclass

from .kv_cache import Copies
from .plan import DeviceBlock, Slot, Start, StepPlan
from .sequence import Sequence


@dataclass(slots=True)
class Row:
    """What one row of a plan does, as its commit needs to know."""

    sequence: Sequence
    num_tokens: int
    computed: int  # tokens of the sequence computed once this row is
    samples: bool
    grown: DeviceBlock | None  # appended to the block table first


class StepDraft:
    """Rows and starts gathered until `finish` freezes them into a StepPlan. Sequences' counts advance here."""

    def __init__(self, budget_tokens: int, block_size: int) -> None:
        self.budget_tokens = budget_tokens
        self._block_size = block_size
        self._starts: list[Start] = []
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

    def compute(self, sequence: Sequence, num_tokens: int, *, grown: DeviceBlock | None = None) -> None:
        """Plan a row of a resident. It samples exactly when it closes the gap."""
        assert sequence.slot is not None
        self.budget_tokens -= num_tokens
        sequence.computed += num_tokens
        sequence.in_flight += 1
        samples = sequence.gap == 0
        sequence.unresolved += samples
        self.rows[sequence.slot] = Row(sequence, num_tokens, sequence.computed, samples, grown)

    def withdraw(self, sequence: Sequence) -> None:
        """Take back the row of a resident that has to leave, if it has one."""
        assert sequence.slot is not None
        row = self.rows.pop(sequence.slot, None)
        if row is not None:
            self.budget_tokens += row.num_tokens
            sequence.computed -= row.num_tokens
            sequence.in_flight -= 1
            sequence.unresolved -= row.samples

    def finish(self, step: int, releases: list[Slot], copies: Copies) -> StepPlan:
        grown = [(slot, row.grown) for slot, row in self.rows.items() if row.grown is not None]
        return StepPlan(
            step=step,
            releases=releases,
            copies_out=copies.out,
            copies_in=copies.into,
            starts=self._starts,
            grow_slots=[slot for slot, _ in grown],
            grow_blocks=[block for _, block in grown],
            row_slots=list(self.rows),
            row_tokens=[row.num_tokens for row in self.rows.values()],
        )
