"""The choice of a step's work: who decodes, who prefills how much, who starts, who yields.

There are no phases. A sequence has tokens computed and tokens known; a step closes the gap. Decodes go first, in rank
order; partial prefills and starts fill the rest of the token budget with whole blocks. What runs out of blocks takes
them from the worst rank. Iteration-level batching is Orca's (OSDI '22), the token budget with decodes first is
Sarathi-Serve's (OSDI '24), the block tables are PagedAttention's (SOSP '23).
"""

from .blocks import BlockStore
from .draft import StepDraft
from .limits import Limits, PreemptionMode
from .plan import EngineDescription
from .preemption import choose_victim
from .queue import WaitingQueue
from .residents import Residents
from .sequence import Sequence
from .state import Move
from .stats import Counters


class Planner:
    """One executor session: what is resident there, and which block is whose. Starts empty.

    Takes sequences from `queue` and puts preempted ones back; that, `residents` and `blocks` are all that it modifies.
    """

    def __init__(self, limits: Limits, engine: EngineDescription, queue: WaitingQueue, counters: Counters) -> None:
        self._limits = limits
        self._block_size = engine.block_size
        self._watermark_blocks = int(limits.watermark * engine.num_device_blocks)
        self._queue = queue
        self._counters = counters
        self.blocks = BlockStore(engine.num_device_blocks, engine.block_size)
        self.residents = Residents(limits.max_num_seqs)

    def draft(self) -> StepDraft:
        """The next step's rows and starts; sequences' counts and block tables have advanced with it."""
        draft = StepDraft(self._limits.max_num_batched_tokens, self._block_size)
        self._plan_decodes(draft)
        self._plan_prefills(draft)
        self._plan_starts(draft)
        self._counters.num_computed_tokens += self._limits.max_num_batched_tokens - draft.budget_tokens
        return draft

    def vacate(self, sequence: Sequence) -> None:
        """Take slot and blocks from a resident. As if serial: both may be used again by the next plan."""
        self.residents.remove(sequence)
        self.blocks.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0

    def requeue(self, sequence: Sequence) -> None:
        """Back to the queue without blocks; a later start computes its tokens again."""
        sequence.move(Move.PREEMPT)
        self.vacate(sequence)
        self._queue.push(sequence)

    def check(self) -> None:
        """Raise AssertionError unless blocks and slots add up."""
        self.blocks.check(block for sequence in self.residents for block in sequence.blocks)
        self.residents.check()
        for sequence in self.residents:
            assert sequence.computed <= len(sequence.blocks) * self._block_size, f"{sequence} outgrew its blocks"

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
        slot = sequence.slot
        assert slot is not None
        if sequence.computed == len(sequence.blocks) * self._block_size:
            while not self.blocks.can_allocate(1):
                victim = choose_victim(self.residents, sequence)
                self._preempt(victim)
                if victim is sequence:
                    return False
            draft.grow(sequence, slot, *self.blocks.allocate(1))
        draft.compute(sequence, slot, 1)
        return True

    def _plan_prefills(self, draft: StepDraft) -> None:
        """Residents with more than one token to compute; their blocks were allocated at the start."""
        for sequence in self.residents:
            if sequence.gap > 1 and (num_tokens := draft.chunk(sequence)):
                assert sequence.slot is not None
                draft.compute(sequence, sequence.slot, num_tokens)

    def _plan_starts(self, draft: StepDraft) -> None:
        """In queue order and never past the first that must wait, so that nothing overtakes it for ever."""
        while (sequence := self._queue.peek()) and self._can_start(sequence):
            if not (num_tokens := draft.chunk(sequence)):
                return
            self._start(draft, self._queue.pop(), num_tokens)

    def _can_start(self, sequence: Sequence) -> bool:
        """A preempted sequence also waits for its tokens in flight: the start carries every known token."""
        if sequence.unresolved or not self.residents.has_free_slot:
            return False
        watermark = self._watermark_blocks if len(self.residents) else 0
        return self.blocks.can_allocate(self._start_blocks(sequence) + watermark)

    def _start_blocks(self, sequence: Sequence) -> int:
        """Blocks of the whole known sequence, or of all that it may become when nothing can be preempted."""
        if self._limits.preemption_mode is PreemptionMode.OFF:
            return self.blocks.blocks_for(sequence.prompt_len + sequence.max_output)
        return self.blocks.blocks_for(sequence.known)

    def _start(self, draft: StepDraft, sequence: Sequence, num_tokens: int) -> None:
        sequence.move(Move.START)
        if sequence.first_start is None:
            sequence.first_start = self._counters.num_started
            self._counters.num_started += 1
        sequence.blocks = self.blocks.allocate(self._start_blocks(sequence))
        slot = self.residents.add(sequence)
        draft.start(sequence, slot)
        draft.compute(sequence, slot, num_tokens)

    def _preempt(self, sequence: Sequence) -> None:
        sequence.num_preemptions += 1
        self._counters.num_preemptions += 1
        self.requeue(sequence)
