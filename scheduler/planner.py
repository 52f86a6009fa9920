"""The choice of a step's work: who decodes, who prefills how much, who starts, who yields.

There are no phases. A sequence has tokens computed and tokens known; a step closes the gap. Decodes go first, in rank
order; then, level by level, partial prefills and starts fill the rest of the token budget with whole blocks. What runs
out of slots or blocks takes them from worse ranks (preemption.py). Iteration-level batching is Orca's (OSDI '22), the
token budget with decodes first is Sarathi-Serve's (OSDI '24), the block tables are PagedAttention's (SOSP '23).
"""

from collections.abc import Callable

from .draft import StepDraft
from .estimate import Estimates
from .kv_cache import Found
from .limits import Limits, PreemptionMode
from .preemption import Room, choose_victims, displaceable, yielding
from .prefill import PrefillControl
from .queues import Level, Queues
from .residency import Residency
from .sequence import LANE, Sequence
from .state import State
from .stats import Blocked, PreemptionReason

MAX_ASIDE = 8  # sequences of a level that step aside in one step
OUT_OF_ROOM = (Blocked.SLOTS, Blocked.BLOCKS)


class Planner:
    """Plans the steps of one executor session, by changing who is resident."""

    def __init__(
        self, limits: Limits, queues: Queues, residency: Residency, prefill: PrefillControl, estimates: Estimates
    ) -> None:
        self._limits = limits
        self._queues = queues
        self._lane = queues.lane
        self._residency = residency
        self._prefill = prefill
        self._estimates = estimates
        self._cache = residency.cache
        self._residents = residency.residents
        self.blocked: dict[int, Blocked] = {}  # by level, as of the last plan

    def draft(self, step: int, now: float, *, alone: Sequence | None = None) -> StepDraft:
        """The rows and starts of this step; sequences' counts and block tables have advanced with it.

        A sequence that has to run `alone` is the whole step; only while it cannot start do others go on.
        """
        self.blocked = {}
        self._cache.begin_plan()
        self._prefill.begin_plan()
        draft = StepDraft(
            step, now, budget_tokens=self._prefill.budget(self._residents), block_size=self._cache.block_size
        )
        if alone is not None and self._plan_alone(draft, alone):
            return draft
        if self._limits.mix_prefill:
            self._plan_decodes(draft)
            self._plan_prefills(draft)
        else:
            self._plan_unmixed(draft)
        return draft

    def _plan_alone(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Whether the step is this sequence's."""
        if sequence.state is State.RUNNING and sequence.gap > 1:
            self._continue(draft, [sequence])
        elif sequence.state is State.RUNNING:
            self._plan_decode(draft, sequence)
        elif self._queues.may_run(sequence):
            self._try_start(draft, sequence, self._cache.find(sequence), sequence.level)
        return bool(draft.rows)

    def _plan_unmixed(self, draft: StepDraft) -> None:
        """Prefills alone or decodes alone, in turn; whoever has nothing to do leaves its turn to the other."""
        first, second = (self._plan_prefills, self._plan_decodes)
        if not self._prefill.has_turn:
            first, second = second, first
        first(draft)
        if not draft.rows:
            second(draft)
        self._prefill.took_turn(prefilled=draft.num_prefills > 0)

    def _plan_decodes(self, draft: StepDraft) -> None:
        """Best rank first, so that what yields is never a sequence that this step computes already."""
        position, most, latest_step = 0, self._micro_batch(), draft.step - self._limits.num_micro_batches
        while position < len(self._residents) and len(draft.rows) < most:
            sequence = self._residents[position]
            is_decode = sequence.known - sequence.computed == 1  # its gap, spelled out: this is the hottest line
            if is_decode and sequence.plannable(latest_step) and not self._plan_decode(draft, sequence):
                continue  # it yielded itself: the next has moved up
            position += 1

    def _micro_batch(self) -> int:
        """Decodes of one plan: an even share, so that no stage of a pipeline waits for a longer step than its own.

        What one plan decodes is in none of the next `num_micro_batches - 1`: those are on their way through the stages
        while the last one samples.
        """
        num_decodes = len(self._residents)
        if self._limits.num_micro_batches > 1:
            num_decodes = sum(sequence.gap == 1 for sequence in self._residents)
        return -(-num_decodes // self._limits.num_micro_batches)

    def _plan_decode(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Plan one token, with the block that it needs. False when the sequence had to yield."""
        grown = None
        if sequence.computed == len(sequence.blocks) * self._cache.block_size:
            if not self._cache.can_grow():
                victims = self._choose(draft, yielding(self._residents, sequence), self._residency.room_to_grow)
                self._preempt(draft, [sequence] if victims is None else victims, PreemptionReason.KV_FULL)
                if victims is None:
                    return False
            grown = self._cache.grow(sequence)
        draft.compute(sequence, 1, grown=grown)
        return True

    def _plan_prefills(self, draft: StepDraft) -> None:
        """Level by level: what has begun goes on, then what waits starts. The lane starts before all levels.

        What prefills in the lane goes on in its own level's turn, so that better ones lose no more than the block that
        is reserved for it. Where nothing may be displaced, who lacks room keeps worse ones from taking what becomes free.
        """
        begun = [sequence for sequence in self._residents if sequence.gap > 1]
        aged = [sequence for sequence in begun if sequence.standing == LANE]
        may_start = self._start_aged(draft)
        draft.reserved_tokens = self._cache.block_size * len(aged)
        for level in self._queues.levels:
            for sequence in aged:
                if sequence.level == level.number:
                    draft.reserved_tokens -= self._cache.block_size
                    self._continue(draft, [sequence])
            self._continue(draft, [sequence for sequence in begun if sequence.standing == level.number])
            if may_start:
                may_start = self._start_level(draft, level)
            elif level.peek():
                self.blocked[level.number] = Blocked.BETTER

    def _continue(self, draft: StepDraft, sequences: list[Sequence]) -> None:
        """Residents with more than one token to compute; their blocks were allocated at the start."""
        for sequence in sequences:
            if sequence.state is not State.RUNNING:
                continue  # displaced for a better level, in this very plan
            if num_tokens := self._prefill.chunk(draft, sequence.computed, sequence.known, standing=sequence.standing):
                draft.compute(sequence, num_tokens)

    def _start_aged(self, draft: StepDraft) -> bool:
        """Fill the lane with what became due first; it waits for nobody's block. Whether levels may start too."""
        while self._residents.num_in_lane < self._lane.num_slots and (sequence := self._queues.peek_aged()):
            if blocked := self._try_start(draft, sequence, self._cache.find(sequence), LANE):
                self.blocked[LANE] = blocked
                return self._lets_others_start(blocked)
        if self._lane.peek():
            is_full = self._residents.num_in_lane == self._lane.num_slots
            self.blocked[LANE] = Blocked.LANE if is_full else Blocked.CLASS
        return True

    def _lets_others_start(self, blocked: Blocked) -> bool:
        """Whether worse ones may start although this one had to wait: what they take can be taken back."""
        return self._limits.preemption_mode is not PreemptionMode.OFF or blocked not in OUT_OF_ROOM

    def _start_level(self, draft: StepDraft, level: Level) -> bool:
        """In queue order and never past the first that must wait, so that nothing overtakes it for ever.

        Only a sequence whose next blocks another is computing steps aside; few do so in one step, since naming their
        blocks takes time. Returns whether worse levels may start too: not before all that could start here has.
        """
        num_aside = 0
        while num_aside < MAX_ASIDE and (sequence := level.peek()):
            found = self._cache.find(sequence)
            if awaited := self._residency.claims.awaited(found.missing, level.number):
                self._queues.park(sequence, awaited)
                num_aside += 1
            elif blocked := self._try_start(draft, sequence, found, level.number):
                self.blocked[level.number] = blocked
                return self._lets_others_start(blocked)
        if level.num_parked:
            self.blocked[level.number] = Blocked.PREFIX
        elif level.is_held_back:
            self.blocked[level.number] = Blocked.CLASS
        return num_aside < MAX_ASIDE

    def _try_start(self, draft: StepDraft, sequence: Sequence, found: Found, standing: int) -> Blocked | None:
        """Start the sequence, displacing worse levels where it must; or say why it has to wait: nothing has changed."""
        if sequence.in_flight:
            return Blocked.RESULT
        end = sequence.known
        if standing == LANE:  # a block is enough to be on its way
            end = min(end, found.computed - found.computed % self._cache.block_size + self._cache.block_size)
        num_tokens = self._prefill.chunk(draft, found.computed, end, standing=standing)
        if not num_tokens:
            return Blocked.BUDGET
        candidates = displaceable(self._residents, standing)
        if not candidates and self._prefill.holds(draft, sequence):
            return Blocked.HELD

        def room() -> Room:
            return self._residency.room_to_start(sequence, found)

        victims = [] if room().is_enough else self._choose(draft, candidates, room)
        if victims is None:
            return Blocked.BLOCKS if self._residents.has_free_slot or candidates else Blocked.SLOTS
        if standing == LANE and self._costs_too_much(sequence, victims):
            return Blocked.BLOCKS
        self._cache.hold(found)
        self._preempt(draft, victims, PreemptionReason.PRIORITY)
        self._residency.start(draft, sequence, found, standing)
        draft.compute(sequence, num_tokens)
        return None

    def _costs_too_much(self, aged: Sequence, victims: list[Sequence]) -> bool:
        """Whether an aged sequence, not the first in the lane, would displace more than one of better levels."""
        num_better = sum(victim.level < aged.level for victim in victims)
        return self._residents.num_in_lane > 0 and num_better > 1

    def _choose(self, draft: StepDraft, candidates: list[Sequence], room: Callable[[], Room]) -> list[Sequence] | None:
        """Who yields to make that room; None when it cannot be made."""
        if self._limits.preemption_mode is PreemptionMode.OFF or not candidates:
            return None
        return choose_victims(candidates, step=draft.step, reluctance=self._limits.reluctance, room=room)

    def _preempt(self, draft: StepDraft, victims: list[Sequence], reason: PreemptionReason) -> None:
        for victim in victims:
            self._residency.preempt(draft, victim, reason, save=self._is_worth_saving(victim))

    def _is_worth_saving(self, sequence: Sequence) -> bool:
        """Whether copying what the host lacks, and back what the device loses, costs less than computing it again."""
        match self._limits.preemption_mode:
            case PreemptionMode.AUTO:
                num_lost = self._cache.num_private(sequence)
                num_copies = self._cache.num_unsaved(sequence) + num_lost
                return self._estimates.swap_is_cheaper(num_copies, num_lost * self._cache.block_size)
            case mode:
                return mode is PreemptionMode.SWAP
