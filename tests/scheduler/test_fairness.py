"""Virtual token counters, against the paper's algorithm done naively."""

import random

from jetway.scheduler.fairness import FairShare


def share_of(weights: dict[str, float] | None = None) -> FairShare[str]:
    return FairShare(lambda party: (weights or {}).get(party, 1.0))


def serve(share: FairShare[str], cost: float, times: int) -> list[str]:
    """Serve the least counter, so many times."""
    served = []
    for _ in range(times):
        party = share.peek()
        assert party is not None
        share.charge(party, cost)
        served.append(party)
    return served


def join(share: FairShare[str], *parties: str) -> None:
    for party in parties:
        share.arrive(party)
        share.wait(party)


def test_equal_weights_take_turns() -> None:
    share = share_of()
    join(share, "a", "b", "c")
    assert serve(share, 1.0, 6) == ["a", "b", "c", "a", "b", "c"]


def test_service_follows_the_weights() -> None:
    share = share_of({"heavy": 3.0})
    join(share, "heavy", "light")
    served = serve(share, 1.0, 400)
    assert (served.count("heavy"), served.count("light")) == (300, 100)


def test_who_stays_away_saves_nothing_up() -> None:
    """The counter is lifted to the least of the living: the newcomer takes turns, it does not take over."""
    share = share_of()
    join(share, "a", "b")
    serve(share, 10.0, 100)
    join(share, "late")
    assert serve(share, 10.0, 6).count("late") == 2


def test_who_leaves_in_debt_returns_in_debt() -> None:
    share = share_of()
    join(share, "a", "b")
    share.charge("a", 100.0)
    share.depart("a")
    share.charge("b", 10.0)
    join(share, "a")
    assert (share.counter("a"), share.counter("b")) == (100.0, 10.0)


def test_with_nobody_left_the_last_counter_is_where_the_next_begins() -> None:
    share = share_of()
    join(share, "a")
    share.charge("a", 50.0)
    share.depart("a")
    join(share, "b")
    assert share.counter("b") == 50.0


def test_a_party_with_nothing_to_serve_is_passed_over() -> None:
    share = share_of()
    join(share, "a", "b")
    share.rest("a")
    assert serve(share, 1.0, 2) == ["b", "b"]
    share.wait("a")
    assert share.peek() == "a"
    share.rest("a")
    share.rest("b")
    assert share.peek() is None


def test_ten_thousand_parties_that_came_and_went_are_forgotten() -> None:
    share = share_of()
    for number in range(10_000):
        join(share, str(number))
        share.charge(str(number), 5.0)
        share.depart(str(number))
    assert len(share) < 200


def test_it_agrees_with_the_naive_algorithm() -> None:
    """Random arrivals, departures and charges: the least counter is always that of a plain scan."""
    rng = random.Random(3)
    share = share_of({"a": 2.0, "b": 0.5})
    counters: dict[str, float] = {}
    live: dict[str, int] = {}
    last = 0.0
    for _ in range(20_000):
        party = rng.choice("abcdefgh")
        if rng.random() < 0.3:
            if not live.get(party):
                floor = min((counters[other] for other in live if live[other]), default=last)
                counters[party] = max(counters.get(party, 0.0), floor)
            live[party] = live.get(party, 0) + 1
            join(share, party)
        elif live.get(party) and rng.random() < 0.5:
            live[party] -= 1
            share.depart(party)
            if not live[party]:
                last = counters[party]
        elif live.get(party):
            cost = rng.randrange(1, 9)
            counters[party] += cost / {"a": 2.0, "b": 0.5}.get(party, 1.0)
            share.charge(party, cost)
        living = [counters[other] for other in live if live[other]]
        least = share.peek()
        assert (least is None) == (not living)
        if least is not None:
            assert counters[least] == min(living)
            assert share.counter(least) == counters[least]
