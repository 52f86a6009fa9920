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
        share.enqueue(party)
        share.offer(party)


def leave(share: FairShare[str], party: str) -> None:
    """Its one sequence starts and ends."""
    share.dequeue(party)
    share.end(party)


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
    leave(share, "a")
    share.charge("b", 10.0)
    join(share, "a")
    assert (share.counter("a"), share.counter("b")) == (100.0, 10.0)


def test_a_running_sequence_does_not_save_up_service() -> None:
    """Nothing of it waits: its next burst is lifted to those that wait, and takes turns."""
    share = share_of()
    join(share, "runs", "waits")
    share.dequeue("runs")
    serve(share, 10.0, 100)
    join(share, "runs")
    assert serve(share, 10.0, 6).count("runs") == 3


def test_with_nobody_left_the_last_counter_is_where_the_next_begins() -> None:
    share = share_of()
    join(share, "a")
    share.charge("a", 50.0)
    leave(share, "a")
    join(share, "b")
    assert share.counter("b") == 50.0


def test_who_left_last_may_still_be_charged_for_what_runs() -> None:
    """The paper takes that client's counter as it stands when the next arrives."""
    share = share_of()
    join(share, "a")
    share.dequeue("a")
    share.charge("a", 70.0)
    join(share, "b")
    assert share.counter("b") == 70.0


def test_a_party_with_nothing_to_serve_is_passed_over() -> None:
    share = share_of()
    join(share, "a", "b")
    share.rest("a")
    assert serve(share, 1.0, 2) == ["b", "b"]
    share.offer("a")
    assert share.peek() == "a"
    share.rest("a")
    share.rest("b")
    assert share.peek() is None


def test_ten_thousand_parties_that_came_and_went_are_forgotten() -> None:
    share = share_of()
    for number in range(10_000):
        join(share, str(number))
        share.charge(str(number), 5.0)
        leave(share, str(number))
    assert len(share) < 200


def test_ten_thousand_parties_that_wait_and_give_up_are_forgotten() -> None:
    share = share_of()
    for number in range(10_000):
        join(share, str(number))
    for number in range(10_000):
        leave(share, str(number))
    assert len(share) < 200
    join(share, "next")
    assert share.peek() == "next"


def test_it_agrees_with_the_paper() -> None:
    """Random arrivals, starts, ends and charges against Algorithm 2 of the paper, with plain scans.

    Q is what waits; a client that is not in Q is lifted to the least of Q or, when Q is empty, to the last that left it.
    """
    rng = random.Random(3)
    weights = {"a": 2.0, "b": 0.5}
    share = share_of(weights)
    counters: dict[str, float] = {}
    queued: dict[str, int] = {}
    running: dict[str, int] = {}
    last = None
    for _ in range(20_000):
        party = rng.choice("abcdefgh")
        waiting = [other for other in queued if queued[other]]
        action = rng.random()
        if action < 0.3:
            if not queued.get(party):
                floor = min(counters[w] for w in waiting) if waiting else counters.get(last or "", 0.0)
                counters[party] = max(counters.get(party, 0.0), floor)
            queued[party] = queued.get(party, 0) + 1
            join(share, party)
        elif action < 0.6 and queued.get(party):
            queued[party] -= 1
            running[party] = running.get(party, 0) + 1
            share.dequeue(party)
            if not queued[party]:
                last = party
        elif action < 0.8 and running.get(party):
            running[party] -= 1
            share.end(party)
        elif running.get(party) or queued.get(party):
            cost = rng.randrange(1, 9)
            counters[party] += cost / weights.get(party, 1.0)
            share.charge(party, cost)
        waiting = [other for other in queued if queued[other]]
        least = share.peek()
        assert (least is None) == (not waiting)
        if least is not None:
            assert counters[least] == min(counters[other] for other in waiting)
            assert share.counter(least) == counters[least]
