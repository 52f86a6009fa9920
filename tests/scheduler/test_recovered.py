"""A scheduler is lost: the requests that it had accepted go on at another, from the tokens that their clients have."""

import pytest

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import FinishReason, SequenceFinished
from jetway.scheduler.request import InvalidRequest, Request
from tests.support.scheduling import Driver, expected_tokens, make_request, make_scheduler


def generated(request: Request, driver: Driver) -> dict[int, list[int]]:
    """What the gateway adds it again with: what has ended is not asked for."""
    live = [id for id in request.sequence_ids if str(id) not in driver.finishes()]
    return {id.index: driver.tokens(request.id, id.index) for id in live}


@pytest.mark.parametrize("num_steps", range(9))
def test_every_request_gets_the_tokens_of_an_undisturbed_run(num_steps: int) -> None:
    requests = [make_request("a", prompt_len=10, max_tokens=9), make_request("b", prompt_len=30, max_tokens=9, n=2)]
    first = Driver(make_scheduler(max_num_batched_tokens=16))
    for request in requests:
        first.scheduler.add(request, 0.0)
    for _ in range(num_steps):
        first.step()
    second = Driver(make_scheduler(max_num_batched_tokens=16))
    for request in requests:
        second.scheduler.add(request, 0.0, generated(request, first))
    second.run()
    for request in requests:
        for id in request.sequence_ids:
            tokens = first.tokens(request.id, id.index) + second.tokens(request.id, id.index)
            assert tokens == expected_tokens(request, id.index)
    assert second.finishes() == {f"{name}": (FinishReason.LENGTH, 9) for name in ("a/0", "b/0", "b/1")}


def test_a_sequence_that_had_ended_is_not_generated_again() -> None:
    driver = Driver(make_scheduler())
    driver.scheduler.add(make_request("a", n=3), 0.0, {2: [7]})
    driver.run()
    assert driver.finishes() == {"a/2": (FinishReason.LENGTH, 4)}
    assert len(driver.tokens("a", 2)) == 3


def test_no_queue_limit_or_timeout_holds_for_what_was_accepted_before() -> None:
    service_class = ServiceClass(max_queued_requests=1, max_queued_tokens=4, queue_timeout_s=5.0)
    driver = Driver(make_scheduler(classes=[service_class]), now=30.0)
    for id in "abc":
        driver.scheduler.add(make_request(id), 0.0, {0: []})
    driver.run()
    assert driver.finishes() == {f"{id}/0": (FinishReason.LENGTH, 4) for id in "abc"}


def test_time_counts_from_the_first_arrival() -> None:
    driver = Driver(make_scheduler(), now=101.5)
    driver.scheduler.add(make_request("a", deadline_s=10.0), 91.0, {0: []})
    driver.scheduler.add(make_request("b", deadline_s=10.0), 92.0, {0: []})
    driver.run()
    assert driver.finishes() == {"a/0": (FinishReason.EXPIRED, 0), "b/0": (FinishReason.LENGTH, 4)}


def test_what_the_same_scheduler_still_has_cached_is_no_credit() -> None:
    """Only the session was lost: the cache finds generated tokens too, but no more than the prompt counts as cached."""
    driver = Driver(make_scheduler())
    request = make_request("a", prompt_len=4, max_tokens=40)
    driver.scheduler.add(request, 0.0)
    for _ in range(33):
        driver.step()
    tokens = driver.tokens("a")
    driver.scheduler.abort("a")
    driver.step()
    driver.scheduler.add(request, 0.0, {0: tokens})
    driver.run()
    assert driver.tokens("a") == expected_tokens(request)
    assert [event.num_cached_tokens for event in driver.log if isinstance(event, SequenceFinished)] == [0, 4]


@pytest.mark.parametrize(
    ("generated", "message"),
    [
        ({}, "generated must name some of 2 sequences"),
        ({2: [1]}, "generated must name some of 2 sequences"),
        ({0: [1000]}, "generated: token id 1000 is not in the vocabulary of 1000 tokens"),
        ({1: [1, 2, 3, 4]}, "4 tokens are generated already, of at most 4"),
    ],
)
def test_what_cannot_have_been_generated_is_refused(generated: dict[int, list[int]], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refusal:
        make_scheduler().add(make_request("a", n=2), 0.0, generated)
    assert refusal.value.param == "generated"
