"""Who starts next, whatever left the queue before."""

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.queue import WaitingQueue
from jetway.scheduler.request import SequenceId
from jetway.scheduler.sequence import Sequence
from jetway.scheduler.state import Move
from tests.support.scheduling import make_request


def make_sequence(id: str, order: int, *, first_start: int | None = None) -> Sequence:
    sequence = Sequence(make_request(id), SequenceId(id, 0), order=order, max_output=4)
    if first_start is not None:
        sequence.move(Move.START)
        sequence.move(Move.PREEMPT)
        sequence.first_start = first_start
    return sequence


def drain(queue: WaitingQueue) -> list[str]:
    return [queue.pop().id.request_id for _ in range(len(queue))]


def test_preempted_sequences_come_first_by_rank_then_the_rest_by_arrival() -> None:
    queue = WaitingQueue(ServiceClass())
    queue.push(make_sequence("second", 1))
    queue.push(make_sequence("resumed later", 3, first_start=5))
    queue.push(make_sequence("first", 0))
    queue.push(make_sequence("resumed first", 7, first_start=2))
    assert drain(queue) == ["resumed first", "resumed later", "first", "second"]
    assert queue.peek() is None


def test_what_has_ended_is_skipped_and_not_counted() -> None:
    queue = WaitingQueue(ServiceClass())
    sequences = [make_sequence(str(order), order) for order in range(1000)]
    for sequence in sequences:
        queue.push(sequence)
    for sequence in sequences[:990]:
        sequence.move(Move.FINISH)
        queue.discard(sequence)
    assert len(queue) == 10
    assert [sequence.id.request_id for sequence in queue.live()] == [str(order) for order in range(990, 1000)]
    assert drain(queue) == [str(order) for order in range(990, 1000)]
