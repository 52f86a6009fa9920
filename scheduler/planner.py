"""The choice of a step's work: who decodes, who prefills how much, who starts, who yields.

There are no phases. A sequence has tokens computed and tokens known; a step closes the gap. Decodes go first, in rank
order; partial prefills and starts fill the rest of the token budget with whole blocks. What runs out of blocks takes
them from the worst rank. Iteration-level batching is Orca's (OSDI '22), the token budget with decodes first is
Sarathi-Serve's (OSDI '24), the block tables are PagedAttention's (SOSP '23).
"""

from typing import NamedTuple

from .blocks import BlockStore
from .claims import Claims
from .draft import Row, StepDraft
from .hashing import BlockHash, root_hash
from .limits import Limits, PreemptionMode
from .plan import DeviceBlock, EngineDescription
from .preemption import choose_victim
from .queue import WaitingQueue
from .residents import Residents
from .sequence import Sequence
from .state import Move, State
from .stats import Counters


class CachedPrefix(NamedTuple):
    """Blocks in the index that hold a sequence's first tokens, and the next one if a resident is computing it."""

    blocks: list[DeviceBlock]
    awaited: BlockHash | None


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
        self._root = root_hash(engine.engine_id)
        self._claims = Claims()
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
        for name in self._claims.give_up(sequence):
            self._queue.unpark(name)
        self.blocks.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.num_indexed = 0

    def settle(self, row: Row) -> None:
        """A row's result has come: full blocks that it computed can be shared from now on."""
        sequence = row.sequence
        sequence.in_flight -= 1
        num_full = row.computed // self._block_size
        if sequence.state is not State.RUNNING or num_full <= sequence.num_indexed:
            return
        sequence.extend_hashes(self._root, self._block_size)
        for block, name in zip(
            sequence.blocks[sequence.num_indexed : num_full],
            sequence.hashes[sequence.num_indexed : num_full],
            strict=True,
        ):
            self.blocks.index(block, name)
            if self._claims.settle(name):
                self._queue.unpark(name)
        sequence.num_indexed = num_full

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
            if sequence.gap > 1 and (num_tokens := draft.chunk(sequence.computed, sequence.known)):
                assert sequence.slot is not None
                draft.compute(sequence, sequence.slot, num_tokens)

    def _plan_starts(self, draft: StepDraft) -> None:
        """In queue order and never past the first that must wait, so that nothing overtakes it for ever.

        Only a sequence whose next block another is computing steps aside.
        """
        while self.residents.has_free_slot and (sequence := self._queue.peek()):
            if sequence.in_flight:
                return  # a start carries every known token, so the last result must be here
            prefix = self._cached_prefix(sequence)
            if prefix.awaited is not None:
                self._queue.park(prefix.awaited)
                continue
            num_tokens = draft.chunk(len(prefix.blocks) * self._block_size, sequence.known)
            if not num_tokens or not self._fits(sequence, prefix.blocks):
                return
            self._start(draft, self._queue.pop(), prefix.blocks, num_tokens)

    def _cached_prefix(self, sequence: Sequence) -> CachedPrefix:
        """What a start may take from the cache. The last token is always computed: its logits are wanted."""
        sequence.extend_hashes(self._root, self._block_size)
        names = sequence.hashes[: (len(sequence.tokens) - 1) // self._block_size]
        blocks = self.blocks.lookup(names)
        following = names[len(blocks) : len(blocks) + 1]
        return CachedPrefix(blocks, following[0] if following and following[0] in self._claims else None)

    def _fits(self, sequence: Sequence, shared: list[DeviceBlock]) -> bool:
        watermark = self._watermark_blocks if len(self.residents) else 0
        num_new = self._start_blocks(sequence) - len(shared)
        return self.blocks.can_allocate(num_new + watermark, sharing=shared)

    def _start_blocks(self, sequence: Sequence) -> int:
        """Blocks of the whole known sequence, or of all that it may become when nothing can be preempted."""
        if self._limits.preemption_mode is PreemptionMode.OFF:
            return self.blocks.blocks_for(sequence.prompt_len + sequence.max_output)
        return self.blocks.blocks_for(sequence.known)

    def _start(self, draft: StepDraft, sequence: Sequence, shared: list[DeviceBlock], num_tokens: int) -> None:
        sequence.move(Move.START)
        self.blocks.share(shared)
        sequence.blocks = shared + self.blocks.allocate(self._start_blocks(sequence) - len(shared))
        sequence.num_indexed = len(shared)
        sequence.computed = len(shared) * self._block_size
        if sequence.first_start is None:
            sequence.first_start = self._counters.num_started
            self._counters.num_started += 1
            sequence.num_cached_tokens = sequence.computed
        self._claims.claim(sequence, sequence.hashes[len(shared) :])
        slot = self.residents.add(sequence)
        draft.start(sequence, slot)
        draft.compute(sequence, slot, num_tokens)

    def _preempt(self, sequence: Sequence) -> None:
        sequence.num_preemptions += 1
        self._counters.num_preemptions += 1
        self.requeue(sequence)
