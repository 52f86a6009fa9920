"""Who may have killed the executor: a sequence that does so is found, and nobody else fails for it (DESIGN section 5).

The sequences of the plans that an executor had when it was lost are suspects. One loss is an accident. A sequence that
was there twice, and never got past that point, runs alone until it does: the step that it needs is not the one that
kills where it is short of that point. If the executor is lost then too, it was the one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .draft import Row, StepDraft
from .sequence import Sequence
from .state import State

MAX_ACCIDENTS = 2  # losses after which a suspect runs alone


@dataclass(slots=True)
class _Record:
    num_losses: int = 0
    lost_at: int = 0  # tokens computed, once the step that was lost would have been done


class Suspects:
    """Survives executors. A sequence is cleared by a committed step that takes it past where it was lost."""

    def __init__(self) -> None:
        self._records: dict[Sequence, _Record] = {}

    @property
    def to_run_alone(self) -> Sequence | None:
        """Who is next: the best level first, and the longest there."""
        alone = (each for each, record in self._records.items() if record.num_losses >= MAX_ACCIDENTS)
        return min(alone, key=lambda each: (each.level, each.order), default=None)

    def accuse(self, in_flight: Iterable[StepDraft]) -> Sequence | None:
        """The executor was lost with these plans in flight. Returns the sequence that is to blame, if that is certain."""
        lost_at = {
            row.sequence: row.computed
            for draft in in_flight
            for row in draft.rows.values()
            if row.sequence.state is not State.FINISHED
        }
        for sequence, computed in lost_at.items():
            record = self._records.setdefault(sequence, _Record())
            record.num_losses += 1
            record.lost_at = max(record.lost_at, computed)
        if len(lost_at) == 1:
            [sequence] = lost_at
            if self._records[sequence].num_losses > MAX_ACCIDENTS:
                return sequence
        return None

    def clear(self, rows: Iterable[Row]) -> None:
        """These rows were computed, and the executor lives."""
        if self._records:
            for row in rows:
                record = self._records.get(row.sequence)
                if record is not None and row.computed >= record.lost_at:
                    del self._records[row.sequence]

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        self._records.pop(sequence, None)
