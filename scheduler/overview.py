"""How things stand, and whether they add up: read off all that the scheduler holds, changing nothing."""

from collections.abc import Mapping
from copy import deepcopy

from .demand import Demand
from .ledger import Ledger
from .planner import Planner
from .queues import Queues
from .residency import Residency
from .sequence import Sequence
from .state import State
from .stats import Blocked, Counters, Stats, Waits


class Overview:
    """Looks at one executor session after the other; what is asked about comes with each call. O(n) in what lives."""

    def __init__(self, queues: Queues, ledger: Ledger, demand: Demand, counters: Counters) -> None:
        self._queues = queues
        self._ledger = ledger
        self._demand = demand
        self._counters = counters

    def stats(self, residency: Residency, planner: Planner, now: float) -> Stats:
        waits = Waits(self._waiting(), lambda sequence: self._why_it_waits(sequence, planner.blocked), now)
        return Stats(
            num_running=len(residency.residents),
            max_num_seqs=residency.residents.num_slots,
            num_waiting=self._queues.num_waiting,
            num_free_device_blocks=residency.cache.num_free_device_blocks,
            num_free_host_blocks=residency.cache.num_free_host_blocks,
            classes=tuple(
                queue.stats(level, waits, self._demand.wait_s(self._queues, level))
                for level, queue in self._queues.class_queues()
            ),
            blocked=dict(planner.blocked),
            counters=deepcopy(self._counters),
        )

    def check(self, residency: Residency) -> None:
        """Raise AssertionError unless every count agrees with the live sequences."""
        residents = list(residency.residents)
        waiting = self._waiting()
        assert {id(each) for each in residents} == {id(each) for each in self._ledger} - {id(each) for each in waiting}
        residency.check(waiting)
        self._queues.check(waiting, residents, residency.claims)

    def _why_it_waits(self, sequence: Sequence, blocked: Mapping[int, Blocked]) -> Blocked:
        """Its own reason, or that of the next of its level, which it stands behind."""
        if sequence.parked_for is not None:
            return Blocked.PREFIX
        if not self._queues.may_run(sequence):
            return Blocked.CLASS
        return blocked.get(sequence.level, Blocked.UNPLANNED)

    def _waiting(self) -> list[Sequence]:
        """Every live sequence that is not resident."""
        return [sequence for sequence in self._ledger if sequence.state is not State.RUNNING]
