"""All queues, by level: what ran before comes back first, then classes and tenants share."""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Items

from .claims import Claims
from .class_queue import ClassQueue
from .classes import ClassError, ServiceClass
from .events import FinishReason
from .fairness import PROMPT_TOKEN, SAMPLED_TOKEN, FairShare
from .hashing import BlockHash
from .lane import AgedLane
from .request import InvalidRequest, Request
from .sequence import Sequence
from .state import State


class Level:
    """One level: strict against others, shared inside.

    Preempted sequences resume before anything starts, over all classes and tenants, in the order of their rank.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.num_parked = 0
        self.classes: dict[str, ClassQueue] = {}
        self.share: FairShare[str] = FairShare(lambda name: self.classes[name].service_class.weight)

    @property
    def is_held_back(self) -> bool:
        """Whether something waits here that only a class's max_running keeps from running."""
        return any((queue.backlog.num_queued or queue.resumes) and not queue.is_open for queue in self.classes.values())

    def peek(self) -> Sequence | None:
        """What runs next of this level; a class at its max_running rests until one of its sequences leaves."""
        heads = (queue.resumes.peek() for queue in self.classes.values() if queue.is_open and queue.resumes)
        if resumed := min((head for head in heads if head is not None), key=lambda each: each.seniority, default=None):
            return resumed
        while (name := self.share.peek()) is not None:
            queue = self.classes[name]
            if queue.is_open and (sequence := queue.peek()) is not None:
                return sequence
            self.share.rest(name)
        return None


class Queues:
    """Where every live sequence stands that is not resident, and what each class and tenant has been served.

    The moves of a sequence's life (`add`, `start`, `preempt`, `end`) are told here as they happen. Nothing costs more
    than O(log n), whatever waits.
    """

    def __init__(
        self, classes: Items[ServiceClass], tenant_weights: Mapping[str, float], *, num_aged_slots: int
    ) -> None:
        """Raises ClassError for equal names, or for none."""
        if not classes:
            raise ClassError("at least one service class is needed")
        self.lane = AgedLane(num_aged_slots)
        levels = {number: Level(number) for number in sorted({each.level for each in classes})}
        self.levels = list(levels.values())  # best first
        self._classes: dict[str, ClassQueue] = {}
        self._levels: dict[str, Level] = {}  # by class
        for each in classes:
            if each.name in self._classes:
                raise ClassError(f"class {each.name} is there twice")
            self._levels[each.name] = levels[each.level]
            self._classes[each.name] = levels[each.level].classes[each.name] = ClassQueue(each, tenant_weights)
        self._parked: dict[BlockHash, list[Sequence]] = {}
        self.num_waiting = 0

    @property
    def num_waiting_tokens(self) -> int:
        """Prompt tokens that wait for their first start."""
        return sum(queue.backlog.num_queued_tokens for queue in self._classes.values())

    def class_queues(self) -> Iterator[tuple[int, ClassQueue]]:
        """Every class with the number of its level."""
        return ((self._levels[name].number, queue) for name, queue in self._classes.items())

    def class_of(self, request: Request) -> ServiceClass:
        """Raises InvalidRequest when there is no such class."""
        queue = self._classes.get(request.service_class)
        if queue is None:
            known = ", ".join(self._classes)
            raise InvalidRequest("service_class", f"there is no class {request.service_class!r}, only {known}")
        return queue.service_class

    def check_room(self, request: Request) -> None:
        """Raise QueueFull when the request's class may not queue it now."""
        self._classes[request.service_class].check_room(request)

    def add(self, sequence: Sequence) -> None:
        """A new sequence waits for its first start."""
        queue, level = self._home(sequence)
        level.share.enqueue(queue.service_class.name)
        queue.enqueue(sequence)
        self.num_waiting += 1
        self._put(sequence)

    def start(self, sequence: Sequence) -> None:
        """What waited is about to become resident. A first start is charged the prompt tokens that have to be computed."""
        queue, level = self._home(sequence)
        self._take(sequence)
        self.num_waiting -= 1
        queue.num_running += 1
        queue.backlog.owe(sequence, 0)
        if sequence.state is State.WAITING:
            self._dequeue(sequence, queue, level)
            queue.backlog.start(sequence)
            num_computed = sequence.prompt_len - sequence.num_cached_tokens
            self._charge(queue.service_class.name, sequence.request.tenant, PROMPT_TOKEN * num_computed)

    def preempt(self, sequence: Sequence) -> None:
        """A resident, PREEMPTED by now, waits to resume."""
        queue, level = self._home(sequence)
        self._leave(queue, level)
        self.num_waiting += 1
        self._put(sequence)
        self.owe(sequence)
        if sequence.aged_at is not None:
            self.lane.enter(sequence, sequence.aged_at)

    def owe(self, sequence: Sequence) -> None:
        """What was saved of a displaced sequence has changed: what is not there of the most it had is computed again."""
        num_saved = 0 if sequence.saved is None else sequence.saved.num_tokens
        self._home(sequence)[0].backlog.owe(sequence, sequence.high_water - num_saved)

    def may_run(self, sequence: Sequence) -> bool:
        """Whether its class may run one more."""
        return self._home(sequence)[0].is_open

    def peek_aged(self) -> Sequence | None:
        """What enters the lane next, of the classes that may run one more."""
        return self.lane.peek(lambda name: self._classes[name].is_open)

    def age(self, sequence: Sequence, now: float) -> None:
        """The sequence has waited as long as its class allows: from now on it may use the lane."""
        sequence.aged_at = now
        self.lane.enter(sequence, now)

    def charge_sampled(self, sequences: Items[Sequence]) -> None:
        """One token of each was committed."""
        tokens = Counter((sequence.request.service_class, sequence.request.tenant) for sequence in sequences)
        for (name, tenant), count in tokens.items():
            self._classes[name].backlog.sampled(count)
            self._charge(name, tenant, SAMPLED_TOKEN * count)

    def end(self, sequence: Sequence, reason: FinishReason) -> None:
        """A sequence is about to finish, from whatever state."""
        queue, level = self._home(sequence)
        queue.backlog.end(sequence, reason)
        if sequence.state is State.RUNNING:
            self._leave(queue, level)
        else:
            self._take(sequence)
            self.num_waiting -= 1
            if sequence.state is State.WAITING:
                self._dequeue(sequence, queue, level)
        queue.share.end(queue.party(sequence.request.tenant))
        level.share.end(queue.service_class.name)

    def delay(self, sequence: Sequence, place: int) -> None:
        """Behind everything of its priority that its tenant has waiting in the class now; `place` is later than theirs."""
        parked = sequence.parked_for is not None
        if not parked:
            self._take(sequence)
        sequence.place = place
        if not parked:
            self._put(sequence)

    def park(self, sequence: Sequence, name: BlockHash) -> None:
        """Set aside until the block is computed or given up; others may overtake it meanwhile."""
        self._take(sequence)
        self._home(sequence)[1].num_parked += 1
        sequence.parked_for = name
        self._parked.setdefault(name, []).append(sequence)

    def unpark(self, name: BlockHash) -> None:
        """Put back, in their order, all that wait for this block."""
        for sequence in self._parked.pop(name, ()):
            if sequence.parked_for == name:
                self._take(sequence)
                self._put(sequence)

    def _home(self, sequence: Sequence) -> tuple[ClassQueue, Level]:
        name = sequence.request.service_class
        return self._classes[name], self._levels[name]

    def _charge(self, name: str, tenant: str, cost: float) -> None:
        queue = self._classes[name]
        queue.share.charge(queue.party(tenant), cost)
        self._levels[name].share.charge(name, cost)

    def _put(self, sequence: Sequence) -> None:
        queue, level = self._home(sequence)
        if sequence.state is State.PREEMPTED:
            queue.resumes.push(sequence.seniority, sequence)
        else:
            queue.put(sequence)
            level.share.offer(queue.service_class.name)

    def _dequeue(self, sequence: Sequence, queue: ClassQueue, level: Level) -> None:
        """The sequence does not wait for its first start any more."""
        queue.dequeue(sequence)
        level.share.dequeue(queue.service_class.name)

    def _take(self, sequence: Sequence) -> None:
        """Out of its queue, or from beside it."""
        queue, level = self._home(sequence)
        if sequence.parked_for is not None:
            sequence.parked_for = None
            level.num_parked -= 1
        elif sequence.state is State.PREEMPTED:
            queue.resumes.remove(sequence)
        else:
            queue.take(sequence)

    def _leave(self, queue: ClassQueue, level: Level) -> None:
        """One sequence of the class runs no more: a class that rested at its max_running may have more to start."""
        queue.num_running -= 1
        if queue.backlog.num_queued:
            level.share.offer(queue.service_class.name)

    def check(self, waiting: Items[Sequence], residents: Items[Sequence], claims: Claims) -> None:
        """Raise AssertionError unless every waiting sequence stands in exactly one place and the counts are right."""
        parked = [s for parked_here in self._parked.values() for s in parked_here if s.parked_for is not None]
        queued = [s for queue in self._classes.values() for s in [*queue, *queue.resumes]]
        places = [*{id(s) for s in parked}, *map(id, queued)]
        assert sorted(places) == sorted(map(id, waiting)), "a waiting sequence is lost, or stands in two places"
        assert self.num_waiting == len(waiting)
        for s in parked:
            assert s.parked_for is not None
            assert claims.is_awaitable(s.parked_for, s.level), f"{s} waits for a block that nobody as good computes"
        assert sum(level.num_parked for level in self.levels) == len({id(s) for s in parked})
        for s in waiting:
            if s.state is State.PREEMPTED:
                num_saved = 0 if s.saved is None else s.saved.num_tokens
                assert s.owed_tokens + num_saved == s.high_water, f"{s} owes {s.owed_tokens} with {num_saved} saved"
        for name, queue in self._classes.items():
            queue.backlog.check([s for s in (*waiting, *residents) if s.request.service_class == name])
            assert queue.num_running == sum(s.request.service_class == name for s in residents)
