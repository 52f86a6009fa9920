"""Who is resident in the executor: starting, leaving, being displaced, with slots, blocks and queues kept in step."""

from collections.abc import Callable, Iterable, Iterator

from .blocks import Departures
from .claims import Claims
from .draft import Row, StepDraft
from .kv_cache import Found, KvCache
from .limits import Limits, PreemptionMode
from .plan import DeviceBlock, EngineDescription
from .queues import Queues
from .residents import Residents
from .sequence import Sequence
from .state import Move, State
from .stats import Counters, PreemptionReason


class Room:
    """Whether there is room, as residents leave one after the other, in thought only."""

    def __init__(self, leaving: Departures[DeviceBlock], enough: Callable[[int], bool]) -> None:
        """`enough` judges by how many have left."""
        self._leaving = leaving
        self._enough = enough
        self._num_left = 0

    @property
    def is_enough(self) -> bool:
        return self._enough(self._num_left)

    def leave(self, sequence: Sequence) -> None:
        self._leaving.add(sequence.blocks)
        self._num_left += 1


class Residency:
    """One executor session's residents. Starts empty; takes sequences from `queues` and puts preempted ones back.

    `start_numbers` counts first starts over all sessions.
    """

    def __init__(
        self,
        limits: Limits,
        engine: EngineDescription,
        queues: Queues,
        counters: Counters,
        start_numbers: Iterator[int],
    ) -> None:
        self._reserves = limits.preemption_mode is PreemptionMode.OFF
        self._watermark_blocks = int(limits.watermark * engine.num_device_blocks)
        self._queues = queues
        self._counters = counters
        self._start_numbers = start_numbers
        self.claims = Claims()
        self.cache = KvCache(engine, write_through=limits.write_through)
        self.residents = Residents(limits.max_num_seqs)

    def room_to_start(self, sequence: Sequence, found: Found) -> Room:
        """What a start needs: a slot, and its blocks with the watermark free unless it is alone."""
        leaving = self.cache.departures(keeping=found.device)
        num_blocks, num_residents = self._start_blocks(sequence), len(self.residents)

        def enough(num_left: int) -> bool:
            if not (num_left or self.residents.has_free_slot):
                return False
            spare = self._watermark_blocks if num_residents > num_left else 0
            return self.cache.can_load(found, num_blocks, spare=spare, num_freed=leaving.num_freed)

        return Room(leaving, enough)

    def room_to_grow(self) -> Room:
        """What a resident needs for its next block."""
        leaving = self.cache.departures()
        return Room(leaving, lambda num_left: leaving.num_freed > 0 or self.cache.can_grow())

    def start(self, draft: StepDraft, sequence: Sequence, found: Found, standing: int) -> None:
        """Make a sequence that fits, and whose finds are held, resident."""
        self.cache.load(sequence, found, self._start_blocks(sequence))
        self._counters.num_recomputed_tokens += max(0, sequence.high_water - sequence.computed)
        if sequence.first_start is None:
            sequence.first_start = next(self._start_numbers)
            sequence.started_at = draft.now
            sequence.num_cached_tokens = min(sequence.computed, sequence.prompt_len)
            self._counters.count_start(sequence)
        self._queues.start(sequence)
        sequence.move(Move.START)
        sequence.standing = standing
        self.claims.claim(sequence, sequence.hashes[sequence.computed // self.cache.block_size :])
        draft.start(sequence, self.residents.add(sequence))

    def preempt(self, draft: StepDraft, sequence: Sequence, reason: PreemptionReason, *, save: bool) -> None:
        """Move a resident out, with its row of this step if it has one; `save` what it has computed."""
        draft.withdraw(sequence)
        sequence.num_preemptions += 1
        sequence.last_preempted = draft.step
        saved = save and self.cache.save(sequence)
        self._counters.count_preemption(reason, swap=saved)
        self.requeue(sequence, draft.now)

    def requeue(self, sequence: Sequence, now: float) -> None:
        """Back to the queues without device blocks; a later start finds what was saved and computes the rest."""
        sequence.move(Move.PREEMPT)
        sequence.waits_since = now
        self.vacate(sequence)
        self._queues.preempt(sequence)

    def vacate(self, sequence: Sequence) -> None:
        """Take slot and blocks from a resident. As if serial: both may be used again by the next plan."""
        self.residents.remove(sequence)
        sequence.high_water = max(sequence.high_water, sequence.computed)
        for name in self.claims.give_up(sequence):
            self._queues.unpark(name)
        self.cache.unload(sequence)

    def settle(self, rows: Iterable[Row]) -> None:
        """The rows' result has come: full blocks that they computed can be shared from now on."""
        block_size = self.cache.block_size
        for row in rows:
            sequence = row.sequence
            sequence.in_flight -= 1
            if row.computed // block_size > sequence.num_indexed and sequence.state is State.RUNNING:
                for name in self.cache.publish(sequence, row.computed // block_size):
                    if self.claims.settle(name):
                        self._queues.unpark(name)

    def check(self, waiting: list[Sequence]) -> None:
        """Raise AssertionError unless blocks and slots add up; `waiting` are the live sequences not resident."""
        self.cache.check(list(self.residents), waiting)
        self.residents.check()

    def _start_blocks(self, sequence: Sequence) -> int:
        """Blocks of the whole known sequence, or of all that it may become when nothing can be preempted."""
        return self.cache.blocks_for(sequence.max_len if self._reserves else sequence.known)
