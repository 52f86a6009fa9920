"""Who is served next of several that wait: fair sharing by virtual token counters.

VTC, "Fairness in Serving Large Language Models" (Sheng et al., OSDI '24): each party has a counter of the tokens that
it was served, over its weight; the waiting party with the least counter is next; a party that had nothing waiting is
lifted to the least counter of those that have, so that no one saves up service by staying away, not even with one long
sequence running. The same code shares a level between classes and a class between tenants.
"""

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

PROMPT_TOKEN = 1.0  # w_in and w_out of the paper: what a computed prompt token and a sampled token cost
SAMPLED_TOKEN = 2.0

Party = TypeVar("Party", bound=Hashable)


class _Account:
    """A party's counter, and how many of its sequences live and wait."""

    __slots__ = ("counter", "num_live", "num_queued", "number", "weight")

    def __init__(self, number: int, weight: float) -> None:
        self.number = number  # order of first arrival: breaks ties
        self.weight = weight
        self.counter = 0.0
        self.num_live = 0
        self.num_queued = 0  # of those, waiting for their first start


class _Least(Generic[Party]):
    """The least counter of a changing set of parties, O(log n) amortised.

    Counters only grow, so an entry that was pushed with an older counter is too low: it is put right when it comes up.
    Entries of parties that are no members any more go when they come up, or when they outnumber the members.
    """

    def __init__(self, accounts: dict[Party, _Account]) -> None:
        self._accounts = accounts
        self._members: set[Party] = set()
        self._entered: set[Party] = set()  # parties that have an entry: one each, whether still a member or not
        self._heap: list[tuple[float, int, Party]] = []

    def __len__(self) -> int:
        return len(self._members)

    def add(self, party: Party) -> None:
        self._members.add(party)
        if party not in self._entered:
            account = self._accounts[party]
            heapq.heappush(self._heap, (account.counter, account.number, party))
            self._entered.add(party)

    def discard(self, party: Party) -> None:
        self._members.discard(party)
        if len(self._heap) > 2 * len(self._members) + 64:
            self._entered = set(self._members)
            self._heap = [(self._accounts[each].counter, self._accounts[each].number, each) for each in self._members]
            heapq.heapify(self._heap)

    def peek(self) -> Party | None:
        while self._heap:
            counter, number, party = self._heap[0]
            if party not in self._members:
                heapq.heappop(self._heap)
                self._entered.discard(party)
            elif counter < self._accounts[party].counter:
                heapq.heapreplace(self._heap, (self._accounts[party].counter, number, party))
            else:
                return party
        return None


class FairShare(Generic[Party]):
    """Counters of parties. `weight_of` gives a party's share; twice the weight is twice the tokens.

    A party is backlogged while a sequence of its waits for its first start, servable while one of those could start now.
    """

    def __init__(self, weight_of: Callable[[Party], float]) -> None:
        self._weight_of = weight_of
        self._accounts: dict[Party, _Account] = {}
        self._backlogged = _Least(self._accounts)
        self._servable = _Least(self._accounts)
        self._num_seen = 0
        self._num_idle = 0  # accounts without a live sequence
        self._forget_at = 64  # of those
        self._last = _Account(-1, 1.0)  # of the party that was backlogged last

    def __len__(self) -> int:
        """Accounts that are remembered."""
        return len(self._accounts)

    def enqueue(self, party: Party) -> None:
        """A new sequence waits. A party that was not backlogged is lifted."""
        account = self._accounts.get(party) or self._open(party)
        if account.num_queued == 0:
            account.counter = max(account.counter, self._floor())
            self._backlogged.add(party)
        if account.num_live == 0:
            self._num_idle -= 1
        account.num_queued += 1
        account.num_live += 1

    def dequeue(self, party: Party) -> None:
        """A sequence waits no more: it has started, or it ends."""
        account = self._accounts[party]
        account.num_queued -= 1
        if account.num_queued == 0:
            self._backlogged.discard(party)
            self._servable.discard(party)
            self._last = account

    def end(self, party: Party) -> None:
        """A sequence lives no more; one that waited is dequeued first."""
        account = self._accounts[party]
        account.num_live -= 1
        if account.num_live == 0:
            self._num_idle += 1
            if self._num_idle > self._forget_at:
                self._forget()

    def charge(self, party: Party, cost: float) -> None:
        """The party was served tokens, in units of PROMPT_TOKEN."""
        account = self._accounts[party]
        account.counter += cost / account.weight

    def offer(self, party: Party) -> None:
        """The party has something that could start."""
        self._servable.add(party)

    def rest(self, party: Party) -> None:
        """The party has nothing that could start now."""
        self._servable.discard(party)

    def peek(self) -> Party | None:
        """The servable party with the least counter; the earliest seen of equals."""
        return self._servable.peek()

    def counter(self, party: Party) -> float:
        """Tokens charged over weight, lifts included."""
        return self._accounts[party].counter

    def _floor(self) -> float:
        """What a party is lifted to: the least counter of the backlogged; of none, the last that was."""
        least = self._backlogged.peek()
        return self._last.counter if least is None else self._accounts[least].counter

    def _open(self, party: Party) -> _Account:
        account = self._accounts[party] = _Account(self._num_seen, self._weight_of(party))
        self._num_seen += 1
        self._num_idle += 1  # until the caller has counted its first sequence
        return account

    def _forget(self) -> None:
        """Idle accounts that their next arrival would lift anyway say nothing."""
        floor = self._floor()
        for name in [name for name, old in self._accounts.items() if not old.num_live and old.counter <= floor]:
            del self._accounts[name]
            self._num_idle -= 1
        self._forget_at = 2 * self._num_idle + 64
