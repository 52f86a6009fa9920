"""Alarms ring in order, once, and are forgotten with their sequences."""

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.state import Move
from jetway.scheduler.timers import Alarm, Timers
from tests.support.scheduling import make_sequence

CLASS = ServiceClass(max_wait_s=1.0, queue_timeout_s=2.0, default_deadline_s=3.0)


def test_they_ring_in_the_order_in_which_they_are_due() -> None:
    timers = Timers()
    sequence = make_sequence("a")
    timers.watch(sequence, CLASS, times_out=True)
    assert timers.next_due() == 1.0
    assert [*timers.ring(0.5)] == []
    assert [*timers.ring(2.0)] == [(Alarm.AGED, sequence), (Alarm.QUEUE_TIMEOUT, sequence)]
    assert timers.next_due() == 3.0


def test_those_of_what_has_finished_are_forgotten() -> None:
    timers = Timers()
    sequences = [make_sequence(str(order), order=order) for order in range(10_000)]
    for sequence in sequences:
        timers.watch(sequence, CLASS, times_out=True)
    for sequence in sequences[1:]:
        sequence.move(Move.FINISH)
        timers.forget(sequence)
    assert len(timers) < 200
    assert timers.next_due() == 1.0
    assert [alarm for alarm, _ in timers.ring(9.0)] == [Alarm.AGED, Alarm.QUEUE_TIMEOUT, Alarm.DEADLINE]
    assert timers.next_due() is None
