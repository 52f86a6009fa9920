"""The choice of a step's work: who decodes, who prefills how much, who starts, who yields.

There are no phases. A sequence has tokens computed and tokens known; a step closes the gap. Decodes go first, in rank
order; partial prefills and starts fill the rest of the token budget with whole blocks. What runs out of blocks takes
them from the worst rank. Iteration-level batching is Orca's (OSDI '22), the token budget with decodes first is
Sarathi-Serve's (OSDI '24), the block tables are PagedAttention's (SOSP '23).
"""

from .claims import Claims
from .draft import Row, StepDraft
from .kv_cache import Found, KvCache
from .limits import Limits, PreemptionMode
from .plan import EngineDescription
from .preemption import choose_victim
from .queue import WaitingQueue
from .residents import Residents
from .sequence import Sequence
from .state import Move, State
from .stats import Counters


class Planner:
    """One executor session: what is resident there, and which block is whose. Starts empty.

    Takes sequences from `queue` and puts preempted ones back; that, `residents` and `cache` are all that it modifies.
    """

    def __init__(self, limits: Limits, engine: EngineDescription, queue: WaitingQueue, counters: Counters) -> None:
        self._limits = limits
        self._watermark_blocks = int(limits.watermark * engine.num_device_blocks)
        self._queue = queue
        self._counters = counters
        self._claims = Claims()
        self.cache = KvCache(engine)
        self.residents = Residents(limits.max_num_seqs)

    def draft(self) -> StepDraft:
        """The next step's rows and starts; sequences' counts and block tables have advanced with it."""
        self.cache.begin_plan()
        draft = StepDraft(self._limits.max_num_batched_tokens, self.cache.block_size)
        self._plan_decodes(draft)
        self._plan_prefills(draft)
        self._plan_starts(draft)
        self._counters.num_computed_tokens += self._limits.max_num_batched_tokens - draft.budget_tokens
        return draft

    def vacate(self, sequence: Sequence) -> None:
        """Take slot and blocks from a resident. As if serial: both may be used again by the next plan."""
        self.residents.remove(sequence)
        for name in self._claims.give_up(sequence):
            self._queue.unpark(name)
        self.cache.unload(sequence)

    def settle(self, row: Row) -> None:
        """A row's result has come: full blocks that it computed can be shared from now on."""
        sequence = row.sequence
        sequence.in_flight -= 1
        if sequence.state is State.RUNNING:
            for name in self.cache.publish(sequence, row.computed // self.cache.block_size):
                if self._claims.settle(name):
                    self._queue.unpark(name)

    def requeue(self, sequence: Sequence) -> None:
        """Back to the queue without device blocks; a later start finds what was saved and computes the rest."""
        sequence.move(Move.PREEMPT)
        self.vacate(sequence)
        self._queue.push(sequence)

    def check(self) -> None:
        """Raise AssertionError unless blocks and slots add up."""
        self.cache.check(list(self.residents), self._queue.live())
        self.residents.check()

    def _plan_decodes(self, draft: StepDraft) -> None:
        """Best rank first, so that a victim is never one that this step computes already."""
        position = 0
        while position < len(self.residents):
            sequence = self.residents[position]
            if sequence.gap == 1 and sequence.plannable and not self._plan_decode(draft, sequence):
                break  # it was the worst rank and yielded itself
            position += 1

    def _plan_decode(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Plan one token, with the block that it needs. False when the sequence had to yield."""
        grown = None
        if sequence.computed == len(sequence.blocks) * self.cache.block_size:
            while not self.cache.can_grow():
                victim = choose_victim(self.residents, sequence)
                self._preempt(victim)
                if victim is sequence:
                    return False
            grown = self.cache.grow(sequence)
        draft.compute(sequence, 1, grown=grown)
        return True

    def _plan_prefills(self, draft: StepDraft) -> None:
        """Residents with more than one token to compute; their blocks were allocated at the start."""
        for sequence in self.residents:
            if sequence.gap > 1 and (num_tokens := draft.chunk(sequence.computed, sequence.known)):
                draft.compute(sequence, num_tokens)

    def _plan_starts(self, draft: StepDraft) -> None:
        """In queue order and never past the first that must wait, so that nothing overtakes it for ever.

        Only a sequence whose next block another is computing steps aside.
        """
        while self.residents.has_free_slot and (sequence := self._queue.peek()):
            if sequence.in_flight:
                return  # a start carries every known token, so the last result must be here
            found = self.cache.find(sequence)
            if found.following is not None and found.following in self._claims:
                self._queue.park(found.following)
                continue
            num_tokens = draft.chunk(found.computed, sequence.known)
            spare = self._watermark_blocks if len(self.residents) else 0
            if not num_tokens or not self.cache.can_load(found, self._start_blocks(sequence), spare=spare):
                return
            self._start(draft, self._queue.pop(), found, num_tokens)

    def _start_blocks(self, sequence: Sequence) -> int:
        """Blocks of the whole known sequence, or of all that it may become when nothing can be preempted."""
        if self._limits.preemption_mode is PreemptionMode.OFF:
            return self.cache.blocks_for(sequence.prompt_len + sequence.max_output)
        return self.cache.blocks_for(sequence.known)

    def _start(self, draft: StepDraft, sequence: Sequence, found: Found, num_tokens: int) -> None:
        sequence.move(Move.START)
        self.cache.load(sequence, found, self._start_blocks(sequence))
        if sequence.first_start is None:
            sequence.first_start = self._counters.num_started
            self._counters.num_started += 1
            sequence.num_cached_tokens = sequence.computed
        self._claims.claim(sequence, sequence.hashes[sequence.computed // self.cache.block_size :])
        draft.start(sequence, self.residents.add(sequence))
        draft.compute(sequence, num_tokens)

    def _preempt(self, sequence: Sequence) -> None:
        sequence.num_preemptions += 1
        self._counters.num_preemptions += 1
        if self._limits.preemption_mode is PreemptionMode.SWAP:
            self.cache.save(sequence)
        self.requeue(sequence)
