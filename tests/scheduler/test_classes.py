"""A class or a limit that contradicts itself is refused with its name and value."""

from math import inf, nan
from typing import Any

import pytest

from jetway.scheduler.classes import ClassError, ServiceClass
from jetway.scheduler.limits import LimitError, Limits


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "a class needs a name"),
        ({"level": 0}, "class standard: level must be a whole number, at least 1, not 0"),
        ({"level": 1.5}, "class standard: level must be a whole number, at least 1, not 1.5"),
        ({"max_queued_requests": 0}, "class standard: max_queued_requests must be a whole number, at least 1, not 0"),
        ({"max_queued_tokens": -1}, "class standard: max_queued_tokens must be a whole number, at least 1, not -1"),
        ({"max_running": 0}, "class standard: max_running must be a whole number, at least 1, not 0"),
        ({"weight": inf}, "class standard: weight must be above 0 and finite, not inf"),
        ({"weight": nan}, "class standard: weight must be above 0 and finite, not nan"),
        ({"queue_timeout_s": 0.0}, "class standard: queue_timeout_s must be above 0 and finite, not 0.0"),
        (
            {"max_wait_s": 5.0, "queue_timeout_s": 5.0},
            "class standard: max_wait_s is 5.0, but queue_timeout_s ends a request after 5.0",
        ),
    ],
)
def test_a_class_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ClassError) as error:
        ServiceClass(**fields)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_waiting_time_s": inf}, "max_waiting_time_s must be at least 0 and finite, not inf"),
        ({"aged_slots": 5}, r"aged_slots must be in [0, max_num_seqs = 4], not 5"),
        ({"watermark": 1.0}, "watermark must be in [0, 1), not 1.0"),
    ],
)
def test_a_limit_out_of_range_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError) as error:
        Limits(max_num_seqs=4, max_num_batched_tokens=64, **fields)
    assert str(error.value) == message


@pytest.mark.parametrize(("max_num_seqs", "num_aged_slots"), [(1, 1), (15, 1), (32, 2), (256, 16)])
def test_the_lane_has_a_sixteenth_of_the_slots_unless_told_otherwise(max_num_seqs: int, num_aged_slots: int) -> None:
    assert Limits(max_num_seqs=max_num_seqs, max_num_batched_tokens=1024).num_aged_slots == num_aged_slots
