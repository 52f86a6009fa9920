"""A step in the making: the token budget, and what will become the plan's parallel arrays."""

from dataclasses import dataclass

from .estimate import StepWork
from .kv_cache import Copies
from .plan import DeviceBlock, Slot, Start, StepPlan
from .sequence import LANE, Sequence


@dataclass(slots=True)
class Row:
    """What one row of a plan does, as its commit needs to know."""

    sequence: Sequence
    num_tokens: int
    computed: int  # tokens of the sequence computed once this row is
    samples: bool
    grown: DeviceBlock | None  # appended to the block table first


class StepDraft:
    """Rows and starts gathered until `finish` freezes them into a StepPlan. Sequences' counts advance here.

    Kept until the plan's result comes: it says what the rows were.
    """

    work: StepWork

    def __init__(self, step: int, now: float, *, budget_tokens: int, block_size: int) -> None:
        self.step = step
        self.now = now
        self.budget_tokens = budget_tokens
        self.reserved_tokens = 0  # of the budget, for prefills in the aged lane that are still to be planned
        self._block_size = block_size
        self._starts: list[Start] = []
        self.rows: dict[Slot, Row] = {}  # in plan order
        self.num_prefills = 0
        self.num_level_prefills = 0  # of those, outside the aged lane
        self.num_samples = 0  # rows that sample
        self._num_prefill_tokens = 0
        self._num_context_tokens = 0

    def chunk(self, begin: int, end: int, *, most: int | None = None) -> int:
        """How many of the tokens [begin, end) this step can compute: all, or up to a block's end, or none.

        `most` bounds it further, but to no less than a block.
        """
        room = self.budget_tokens - self.reserved_tokens
        if most is not None:
            room = min(room, max(most, self._block_size))
        if end - begin <= room:
            return end - begin
        reach = begin + room
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
        sequence.computed += num_tokens
        sequence.in_flight += 1
        samples = sequence.known == sequence.computed
        if samples:
            sequence.known += 1
            sequence.last_sampled = self.step
        row = self.rows[sequence.slot] = Row(sequence, num_tokens, sequence.computed, samples, grown)
        self._count(row, 1)

    def withdraw(self, sequence: Sequence) -> None:
        """Take back the row of a resident that has to leave, if it has one."""
        assert sequence.slot is not None
        row = self.rows.pop(sequence.slot, None)
        if row is not None:
            self._count(row, -1)
            sequence.computed -= row.num_tokens
            sequence.in_flight -= 1
            sequence.known -= row.samples

    def _count(self, row: Row, change: int) -> None:
        self.budget_tokens -= change * row.num_tokens
        self._num_context_tokens += change * row.computed
        self.num_samples += change * row.samples
        if row.num_tokens > 1:
            self.num_prefills += change
            self.num_level_prefills += change * (row.sequence.standing != LANE)
            self._num_prefill_tokens += change * row.num_tokens

    def finish(self, releases: list[Slot], copies: Copies) -> StepPlan:
        """Freeze into the plan; `work` says from now on what it computes and copies."""
        self.work = StepWork(
            num_prefill_tokens=self._num_prefill_tokens,
            num_decodes=len(self.rows) - self.num_prefills,
            num_context_tokens=self._num_context_tokens,
            num_copied_blocks=len(copies.out) + len(copies.into),
        )
        grown = [(slot, row.grown) for slot, row in self.rows.items() if row.grown is not None]
        return StepPlan(
            step=self.step,
            releases=releases,
            copies_out=[(device, host) for host, device in copies.out.items()],
            copies_in=copies.into,
            starts=self._starts,
            grow_slots=[slot for slot, _ in grown],
            grow_blocks=[block for _, block in grown],
            row_slots=list(self.rows),
            row_tokens=[row.num_tokens for row in self.rows.values()],
        )
