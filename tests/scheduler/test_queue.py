"""Order and removal of queued sequences, whatever was removed before."""

from jetway.scheduler.queue import Queue
from tests.support.scheduling import make_sequence


def drain(queue: Queue) -> list[str]:
    drained = []
    while sequence := queue.peek():
        queue.remove(sequence)
        drained.append(sequence.id.request_id)
    return drained


def test_the_least_key_comes_first() -> None:
    queue = Queue()
    for key, id in [((2, 0), "c"), ((1, 5), "b"), ((1, 4), "a")]:
        queue.push(key, make_sequence(id))
    assert drain(queue) == ["a", "b", "c"]
    assert len(queue) == 0


def test_a_removed_sequence_may_come_back_with_another_key() -> None:
    queue = Queue()
    moved, other = make_sequence("moved"), make_sequence("other")
    queue.push((1,), moved)
    queue.push((2,), other)
    queue.remove(moved)
    queue.push((3,), moved)
    assert len(queue) == 2
    assert drain(queue) == ["other", "moved"]


def test_a_thousand_removals_leave_the_rest_in_order() -> None:
    queue = Queue()
    sequences = [make_sequence(str(order)) for order in range(1000)]
    for order, sequence in enumerate(sequences):
        queue.push((order,), sequence)
    for sequence in sequences[5:995]:
        queue.remove(sequence)
    assert sorted(int(sequence.id.request_id) for sequence in queue) == [*range(5), *range(995, 1000)]
    assert drain(queue) == [str(order) for order in [*range(5), *range(995, 1000)]]
