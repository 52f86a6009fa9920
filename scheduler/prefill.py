"""How much of a step prefills may have, and when a thin batch of them waits to fill up."""

from collections.abc import Iterable

from .draft import StepDraft
from .estimate import Estimates
from .limits import Limits
from .queues import Queues
from .sequence import LANE, Sequence


class PrefillControl:
    """The limits on prefills. `has_turn` alternates prefill and decode steps when they may not mix."""

    def __init__(self, limits: Limits, queues: Queues, estimates: Estimates, block_size: int) -> None:
        self._limits = limits
        self._queues = queues
        self._estimates = estimates
        self._block_size = block_size
        self.has_turn = True
        self.hold_until: float | None = None  # when a held batch starts at the latest

    def begin_plan(self) -> None:
        self.hold_until = None

    def took_turn(self, *, prefilled: bool) -> None:
        """A step is planned: the next turn is the other's."""
        self.has_turn = not prefilled

    def budget(self, residents: Iterable[Sequence]) -> int:
        """Tokens of this step: max_num_batched_tokens, or what keeps the tightest inter-token objective of a resident.

        One block beside the decodes always remains, or a prefill could starve; another for each in the aged lane.
        """
        objectives = [each.itl_objective_s for each in residents if each.itl_objective_s is not None]
        if not objectives:
            return self._limits.max_num_batched_tokens
        decodes = [sequence.computed for sequence in residents if sequence.gap == 1]
        share = self._limits.num_micro_batches  # that a token waits for, its own among them
        num_decodes = -(-len(decodes) // share)
        spare = self._estimates.prefill_tokens_within(min(objectives) / share, num_decodes, sum(decodes) // share)
        num_aged = sum(each.standing == LANE and each.gap > 1 for each in residents)
        num_tokens = num_decodes + max(self._block_size * (1 + num_aged), spare)
        return min(self._limits.max_num_batched_tokens, num_tokens)

    def chunk(self, draft: StepDraft, begin: int, end: int, *, standing: int) -> int:
        """How many of the tokens [begin, end) this step may compute; 0 when the step has prefills enough.

        The aged lane comes on top of max_prefill_seqs: it prefills slowly beside others, and must not take their turn.
        """
        most = self._limits.max_prefill_seqs
        if most is not None and draft.num_level_prefills >= most and standing != LANE:
            return 0
        return draft.chunk(begin, end, most=self._longest_chunk(draft, end))

    def _longest_chunk(self, draft: StepDraft, end: int) -> int | None:
        """Tokens, of a prompt of `end`; None: no bound.

        A pipeline has a prompt in as many chunks as it has micro-batches, one behind the other: its stages are at work on
        all of them at once, in steps of about equal length.
        """
        num_chunks, block_size = self._limits.num_micro_batches, self._block_size
        threshold = self._limits.long_prefill_token_threshold
        most = threshold if threshold and draft.rows else None
        if num_chunks == 1:
            return most
        share = -(-end // (num_chunks * block_size)) * block_size
        return share if most is None else min(most, share)

    def holds(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Whether a first start waits for company: the waiting prompts do not fill the budget and none is old yet."""
        if not self._limits.max_waiting_time_s or sequence.first_start is not None:
            return False
        until = sequence.arrival + self._limits.max_waiting_time_s
        if draft.now >= until or draft.num_prefills or self._queues.num_waiting_tokens >= draft.budget_tokens:
            return False
        self.hold_until = until
        return True
