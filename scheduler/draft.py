"""A step in the making: the token budget, and the plan's parallel arrays."""

from .plan import DeviceBlock, Slot, Start, StepPlan
from .sequence import Sequence


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
        self.rows: dict[Slot, Sequence] = {}  # every row's sequence, in plan order

    def chunk(self, sequence: Sequence) -> int:
        """Tokens of the sequence that this step can compute: all of its gap, or whole blocks of it, or 0."""
        gap = sequence.gap
        if gap <= self.budget_tokens:
            return gap
        end = sequence.computed + self.budget_tokens
        return max(0, end - end % self._block_size - sequence.computed)

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
        self.rows[slot] = sequence
        self.budget_tokens -= num_tokens
        sequence.computed += num_tokens
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
