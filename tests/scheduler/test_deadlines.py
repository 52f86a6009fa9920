"""Deadlines and queue timeouts end what is too late, in whatever state it is."""

from typing import Any

from jetway.scheduler.classes import ServiceClass, TimeoutAction
from jetway.scheduler.events import FinishReason
from tests.support.scheduling import Driver, make_request, make_scheduler

HIGH = ServiceClass(name="high", level=1)


def add(driver: Driver, id: str, **fields: Any) -> None:
    driver.scheduler.add(make_request(id, **fields), driver.now)


def test_a_deadline_ends_whatever_state_the_request_is_in() -> None:
    driver = Driver(make_scheduler(max_num_seqs=1))
    add(driver, "runs", max_tokens=90, deadline_s=5.0)
    add(driver, "waits", max_tokens=90, deadline_s=4.0)
    add(driver, "stays", max_tokens=3)
    driver.step()
    assert driver.scheduler.wake_at() == 4.0
    driver.now = 4.5
    driver.step()
    assert driver.finishes() == {"waits/0": (FinishReason.EXPIRED, 0)}
    driver.now = 5.0
    driver.run()
    assert driver.finishes()["runs/0"][0] is FinishReason.EXPIRED
    assert driver.finishes()["stays/0"] == (FinishReason.LENGTH, 3)
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 100


def test_a_queue_timeout_rejects_what_never_started() -> None:
    """It does not count while a sequence runs, nor after it was preempted."""
    low = ServiceClass(name="low", level=2, queue_timeout_s=3.0)
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[HIGH, low]))
    add(driver, "started", max_tokens=9, service_class="low")
    add(driver, "never", max_tokens=9, service_class="low")
    driver.step()
    add(driver, "high", max_tokens=9, service_class="high")
    driver.step()
    driver.now = 3.0
    driver.run()
    assert driver.finishes() == {
        "never/0": (FinishReason.EXPIRED, 0),
        "high/0": (FinishReason.LENGTH, 9),
        "started/0": (FinishReason.LENGTH, 9),
    }


def test_a_request_may_shorten_the_queue_timeout_of_its_class_but_not_lengthen_it() -> None:
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[ServiceClass(queue_timeout_s=3.0)]))
    add(driver, "runs", max_tokens=9)
    add(driver, "hasty", queue_timeout_s=2.0)
    add(driver, "patient", queue_timeout_s=4.0)
    driver.step()
    assert driver.scheduler.wake_at() == 2.0
    driver.now = 2.0
    driver.step()
    assert driver.finishes() == {"hasty/0": (FinishReason.EXPIRED, 0)}
    driver.now = 3.0
    driver.step()
    assert driver.finishes()["patient/0"] == (FinishReason.EXPIRED, 0)


def test_a_queue_timeout_is_of_the_request_and_not_of_each_of_its_n() -> None:
    """Once one sequence has started the request does not wait any more; before, all of it is rejected at once."""
    driver = Driver(make_scheduler(max_num_seqs=2, classes=[ServiceClass(queue_timeout_s=3.0)]))
    add(driver, "started", n=5, max_tokens=6)
    driver.step()
    add(driver, "waits", n=2, max_tokens=6)
    driver.now = 3.0
    driver.run()
    assert driver.finishes() == {
        **{f"started/{index}": (FinishReason.LENGTH, 6) for index in range(5)},
        **{f"waits/{index}": (FinishReason.EXPIRED, 0) for index in range(2)},
    }


def test_one_that_has_ended_had_started() -> None:
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[ServiceClass(queue_timeout_s=3.0)]))
    add(driver, "a", n=3, max_tokens=1)
    driver.step()
    driver.now = 3.0
    driver.run()
    assert set(driver.finishes().values()) == {(FinishReason.LENGTH, 1)}


def test_a_queue_timeout_may_send_it_to_the_end_instead() -> None:
    delayed = ServiceClass(queue_timeout_s=3.0, queue_timeout_action=TimeoutAction.DELAY)
    driver = Driver(make_scheduler(max_num_seqs=1, classes=[delayed]))
    add(driver, "runs", max_tokens=2)
    add(driver, "old", max_tokens=1)
    driver.step()
    driver.now = 2.5
    add(driver, "young", max_tokens=1)
    driver.now = 3.5
    driver.run()
    assert driver.starts() == ["runs", "young", "old"]
