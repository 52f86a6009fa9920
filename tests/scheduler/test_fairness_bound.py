"""The bound of VTC on the whole scheduler: what two backlogged clients are served never differs by more.

Sheng et al., OSDI '24: over any interval in which both have something waiting, the difference is at most
2 * max(w_in * longest prompt, w_out * M), with w_in = 1 and w_out = 2. M is the most tokens that what has started can
hold: the KV pool's, or, where what has started can be preempted and goes on before anything starts, all slots'.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import TokenSampled
from jetway.scheduler.limits import PreemptionMode
from tests.support.scheduling import BLOCK_SIZE, Driver, ReferenceExecutor, make_request, make_scheduler

NUM_SLOTS = 8
LONGEST_PROMPT, LONGEST_SEQUENCE = 40, 44
ALL_SLOTS = NUM_SLOTS * LONGEST_SEQUENCE  # tokens
AMPLE, SCARCE = ALL_SLOTS // BLOCK_SIZE, 20  # blocks


def bound(most_tokens: int) -> int:
    return 2 * max(LONGEST_PROMPT, 2 * most_tokens)


@dataclass
class Clients:
    """Requests of named clients, and what each was served: 1 a prompt token at the first start, 2 an output token."""

    driver: Driver
    served: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, set[str]] = field(default_factory=dict)  # for the first start
    numbers: Iterator[int] = field(default_factory=count)

    def add(self, client: str, num_requests: int, *, prompt_len: int, max_tokens: int) -> None:
        self.served.setdefault(client, 0)
        for _ in range(num_requests):
            id = f"{client} {next(self.numbers)}"
            self.waiting.setdefault(client, set()).add(id)
            request = make_request(id, prompt_len=prompt_len, max_tokens=max_tokens, tenant=client)
            self.driver.scheduler.add(request, self.driver.now)

    def step(self) -> None:
        num_events = len(self.driver.log)
        plan = self.driver.step()
        assert plan is not None
        for start in plan.starts:
            id = start.sequence_id.request_id
            client = id.split()[0]
            if id in self.waiting[client]:
                self.waiting[client].remove(id)
                self.served[client] += start.prompt_len
        for event in self.driver.log[num_events:]:
            if isinstance(event, TokenSampled):
                self.served[event.sequence_id.request_id.split()[0]] += 2

    def difference_while_both_wait(self, one: str, other: str) -> int:
        """Step until one of them has nothing waiting; the greatest difference over any interval until then."""
        differences = []
        while self.waiting[one] and self.waiting[other]:
            differences.append(self.served[one] - self.served[other])
            self.step()
        return max(differences) - min(differences)


def make_clients(num_blocks: int, mode: PreemptionMode, *, share_fairly: bool = True) -> Clients:
    scheduler = make_scheduler(
        num_blocks=num_blocks,
        max_num_seqs=NUM_SLOTS,
        max_num_batched_tokens=48,
        preemption_mode=mode,
        classes=[ServiceClass(share_fairly=share_fairly)],
    )
    return Clients(Driver(scheduler, ReferenceExecutor(num_blocks=num_blocks)))


@pytest.mark.parametrize("share_fairly", [True, False])
@pytest.mark.parametrize(
    ("mode", "most_tokens"),
    [(PreemptionMode.OFF, SCARCE * BLOCK_SIZE), (PreemptionMode.RECOMPUTE, ALL_SLOTS)],
)
def test_two_backlogged_clients_stay_within_the_bound_and_under_fcfs_do_not(
    mode: PreemptionMode, most_tokens: int, share_fairly: bool
) -> None:
    """One asks for long prompts, the other for long outputs, and the one comes first."""
    clients = make_clients(SCARCE, mode, share_fairly=share_fairly)
    clients.add("prompts", 60, prompt_len=LONGEST_PROMPT, max_tokens=4)
    clients.add("outputs", 60, prompt_len=4, max_tokens=LONGEST_PROMPT)
    difference = clients.difference_while_both_wait("prompts", "outputs")
    assert (difference <= bound(most_tokens)) == share_fairly


def test_who_asked_for_little_has_saved_nothing_up() -> None:
    """A client that always has a request running, and hardly ever one waiting, takes turns when it asks for more."""
    clients = make_clients(AMPLE, PreemptionMode.OFF)
    clients.add("greedy", 200, prompt_len=4, max_tokens=LONGEST_PROMPT)
    for _ in range(10):
        clients.add("modest", 1, prompt_len=4, max_tokens=LONGEST_PROMPT)
        for _ in range(LONGEST_PROMPT - 4):
            clients.step()
    clients.add("modest", 60, prompt_len=4, max_tokens=LONGEST_PROMPT)
    assert clients.difference_while_both_wait("greedy", "modest") <= bound(ALL_SLOTS)
