"""Who is served next of several that wait: fair sharing by virtual token counters.

VTC, "Fairness in Serving Large Language Models" (Sheng et al., OSDI '24): each party has a counter of the tokens that
it was served, over its weight; the waiting party with the least counter is next; a party that comes back from having
nothing is lifted to the least counter of those that live, so that no one saves up service by staying away. The same
code shares a level between classes and a class between tenants.
"""

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

PROMPT_TOKEN = 1.0  # w_in and w_out of the paper: what a computed prompt token and a sampled token cost
SAMPLED_TOKEN = 2.0

Party = TypeVar("Party", bound=Hashable)


class _Account:
    """A party's counter, and how many of its sequences live."""

    __slots__ = ("counter", "num_live", "number", "weight")

    def __init__(self, number: int, weight: float) -> None:
        self.number = number  # order of first arrival: breaks ties
        self.weight = weight
        self.counter = 0.0
        self.num_live = 0


class _Least(Generic[Party]):
    """The least counter of a changing set of parties, O(log n) amortised.

    Counters only grow, so an entry that was pushed with an older counter is too low: it is put right when it comes up.
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
    """Counters of parties. `weight_of` gives a party's share; twice the weight is twice the tokens."""

    def __init__(self, weight_of: Callable[[Party], float]) -> None:
        self._weight_of = weight_of
        self._accounts: dict[Party, _Account] = {}
        self._living = _Least(self._accounts)
        self._waiting = _Least(self._accounts)
        self._num_seen = 0
        self._last_counter = 0.0  # of the party that left last

    def __len__(self) -> int:
        """Accounts that are remembered."""
        return len(self._accounts)

    def arrive(self, party: Party) -> None:
        """One more live sequence; the first lifts the counter."""
        account = self._accounts.get(party) or self._open(party)
        if account.num_live == 0:
            account.counter = max(account.counter, self._floor())
            self._living.add(party)
        account.num_live += 1

    def depart(self, party: Party) -> None:
        """One live sequence less."""
        account = self._accounts[party]
        account.num_live -= 1
        if account.num_live == 0:
            self._living.discard(party)
            self._waiting.discard(party)
            self._last_counter = account.counter

    def charge(self, party: Party, cost: float) -> None:
        """The party was served tokens, in units of PROMPT_TOKEN."""
        account = self._accounts[party]
        account.counter += cost / account.weight

    def wait(self, party: Party) -> None:
        """The party has something that could be served."""
        self._waiting.add(party)

    def rest(self, party: Party) -> None:
        """The party has nothing that could be served now."""
        self._waiting.discard(party)

    def peek(self) -> Party | None:
        """The waiting party with the least counter; the earliest seen of equals."""
        return self._waiting.peek()

    def counter(self, party: Party) -> float:
        """Tokens charged over weight, lifts included."""
        account = self._accounts.get(party)
        return account.counter if account else self._floor()

    def _floor(self) -> float:
        """What a party without live sequences is lifted to."""
        least = self._living.peek()
        return self._last_counter if least is None else self._accounts[least].counter

    def _open(self, party: Party) -> _Account:
        """A new account. Old ones that the next arrival would lift anyway are forgotten now and then."""
        if len(self._accounts) > 2 * len(self._living) + 64:
            floor = self._floor()
            idle = [name for name, old in self._accounts.items() if not old.num_live and old.counter <= floor]
            for name in idle:
                del self._accounts[name]
        account = self._accounts[party] = _Account(self._num_seen, self._weight_of(party))
        self._num_seen += 1
        return account
