"""The choice of a step's work: who decodes, who prefills how much, who starts, who yields.

There are no phases. A sequence has tokens computed and tokens known; a step closes the gap. Decodes go first, in rank
order; then, level by level, partial prefills and starts fill the rest of the token budget with whole blocks. What runs
out of slots or blocks takes them from worse ranks (preemption.py). Iteration-level batching is Orca's (OSDI '22), the
token budget with decodes first is Sarathi-Serve's (OSDI '24), the block tables are PagedAttention's (SOSP '23).
"""

from collections.abc import Callable

from .claims import Claims
from .draft import Row, StepDraft
from .kv_cache import Found, KvCache
from .lane import AgedLane
from .limits import Limits, PreemptionMode
from .plan import EngineDescription
from .preemption import choose_victims, displaceable, yielding
from .queues import Level, Queues
from .residents import Residents
from .sequence import LANE, Sequence
from .state import Move, State
from .stats import Counters


class Planner:
    """One executor session: what is resident there, and which block is whose. Starts empty.

    Takes sequences from `queues` and `lane` and puts preempted ones back; that, `residents` and `cache` are all that it
    modifies.
    """

    def __init__(
        self, limits: Limits, engine: EngineDescription, queues: Queues, lane: AgedLane, counters: Counters
    ) -> None:
        self._limits = limits
        self._watermark_blocks = int(limits.watermark * engine.num_device_blocks)
        self._queues = queues
        self._lane = lane
        self._counters = counters
        self._claims = Claims()
        self._step = 0
        self.cache = KvCache(engine)
        self.residents = Residents(limits.max_num_seqs, num_aged_slots=lane.num_slots)

    def draft(self, step: int) -> StepDraft:
        """The rows and starts of this step; sequences' counts and block tables have advanced with it."""
        self._step = step
        self.cache.begin_plan()
        draft = StepDraft(self._limits.max_num_batched_tokens, self.cache.block_size)
        self._plan_decodes(draft)
        prefilling = [sequence for sequence in self.residents if sequence.gap > 1]
        self._plan_prefills(draft, [sequence for sequence in prefilling if sequence.standing == LANE])
        self._start_aged(draft)
        for level in self._queues.levels:
            self._plan_prefills(draft, [sequence for sequence in prefilling if sequence.standing == level.number])
            self._plan_starts(draft, level)
        self._counters.num_computed_tokens += self._limits.max_num_batched_tokens - draft.budget_tokens
        return draft

    def vacate(self, sequence: Sequence) -> None:
        """Take slot and blocks from a resident. As if serial: both may be used again by the next plan."""
        self.residents.remove(sequence)
        for name in self._claims.give_up(sequence):
            self._queues.unpark(name)
        self.cache.unload(sequence)

    def requeue(self, sequence: Sequence) -> None:
        """Back to the queues without device blocks; a later start finds what was saved and computes the rest."""
        sequence.move(Move.PREEMPT)
        self.vacate(sequence)
        self._queues.preempt(sequence)

    def settle(self, row: Row) -> None:
        """A row's result has come: full blocks that it computed can be shared from now on."""
        sequence = row.sequence
        sequence.in_flight -= 1
        if sequence.state is State.RUNNING:
            for name in self.cache.publish(sequence, row.computed // self.cache.block_size):
                if self._claims.settle(name):
                    self._queues.unpark(name)

    def check(self, waiting: list[Sequence]) -> None:
        """Raise AssertionError unless blocks and slots add up; `waiting` are the live sequences not resident."""
        self.cache.check(list(self.residents), waiting)
        self.residents.check()

    def _plan_decodes(self, draft: StepDraft) -> None:
        """Best rank first, so that what yields is never a sequence that this step computes already."""
        position = 0
        while position < len(self.residents):
            sequence = self.residents[position]
            if sequence.gap == 1 and sequence.plannable and not self._plan_decode(draft, sequence):
                continue  # it yielded itself: the next has moved up
            position += 1

    def _plan_decode(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Plan one token, with the block that it needs. False when the sequence had to yield."""
        grown = None
        if sequence.computed == len(sequence.blocks) * self.cache.block_size:
            if not self.cache.can_grow():
                candidates = yielding(self.residents, sequence)
                if not self._displace(draft, candidates, lambda victims: self.cache.can_grow(without=victims)):
                    self._preempt(sequence)
                    return False
            grown = self.cache.grow(sequence)
        draft.compute(sequence, 1, grown=grown)
        return True

    def _plan_prefills(self, draft: StepDraft, sequences: list[Sequence]) -> None:
        """Residents with more than one token to compute; their blocks were allocated at the start."""
        for sequence in sequences:
            if sequence.state is State.RUNNING and (num_tokens := draft.chunk(sequence.computed, sequence.known)):
                draft.compute(sequence, num_tokens)

    def _start_aged(self, draft: StepDraft) -> None:
        """Fill the lane with what became due first; it waits for nobody's block."""
        while self.residents.num_in_lane < self._lane.num_slots and (sequence := self._lane.peek()):
            if not self._try_start(draft, sequence, self.cache.find(sequence), LANE):
                return

    def _plan_starts(self, draft: StepDraft, level: Level) -> None:
        """In queue order and never past the first that must wait, so that nothing overtakes it for ever.

        Only a sequence whose next block another is computing steps aside.
        """
        while sequence := level.peek():
            found = self.cache.find(sequence)
            if found.following is not None and found.following in self._claims:
                self._queues.park(sequence, found.following)
            elif not self._try_start(draft, sequence, found, level.number):
                return

    def _try_start(self, draft: StepDraft, sequence: Sequence, found: Found, standing: int) -> bool:
        """Start the sequence, displacing worse levels where it must. False when it has to wait; nothing has changed."""
        if sequence.in_flight:
            return False  # a start carries every known token, so the last result must be here
        num_tokens = draft.chunk(found.computed, sequence.known)
        num_blocks = self._start_blocks(sequence)

        def fits(victims: list[Sequence]) -> bool:
            spare = self._watermark_blocks if len(self.residents) > len(victims) else 0
            return self.residents.has_slot_for(sequence, without=victims) and self.cache.can_load(
                found, num_blocks, spare=spare, without=victims
            )

        candidates = displaceable(self.residents, standing)
        if not num_tokens or not (fits([]) or self._displace(draft, candidates, fits)):
            return False
        self._start(draft, sequence, found, standing)
        draft.compute(sequence, num_tokens)
        return True

    def _start_blocks(self, sequence: Sequence) -> int:
        """Blocks of the whole known sequence, or of all that it may become when nothing can be preempted."""
        if self._limits.preemption_mode is PreemptionMode.OFF:
            return self.cache.blocks_for(sequence.prompt_len + sequence.max_output)
        return self.cache.blocks_for(sequence.known)

    def _start(self, draft: StepDraft, sequence: Sequence, found: Found, standing: int) -> None:
        self.cache.load(sequence, found, self._start_blocks(sequence))
        if sequence.first_start is None:
            sequence.first_start = self._counters.num_started
            self._counters.num_started += 1
            sequence.num_cached_tokens = sequence.computed
        self._queues.start(sequence)
        sequence.move(Move.START)
        sequence.standing = standing
        self._claims.claim(sequence, sequence.hashes[sequence.computed // self.cache.block_size :])
        draft.start(sequence, self.residents.add(sequence))

    def _displace(self, draft: StepDraft, candidates: list[Sequence], enough: Callable[[list[Sequence]], bool]) -> bool:
        """Preempt the fewest of `candidates` that are enough. False, and nothing has changed, when all are not."""
        if self._limits.preemption_mode is PreemptionMode.OFF:
            return False
        victims = choose_victims(candidates, step=self._step, reluctance=self._limits.reluctance, enough=enough)
        for victim in victims or ():
            draft.withdraw(victim)
            self._preempt(victim)
        return victims is not None

    def _preempt(self, sequence: Sequence) -> None:
        sequence.num_preemptions += 1
        sequence.last_preempted = self._step
        self._counters.num_preemptions += 1
        if self._limits.preemption_mode is not PreemptionMode.RECOMPUTE:
            self.cache.save(sequence)
        self.requeue(sequence)
