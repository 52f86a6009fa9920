"""What the last stage samples is known to the ranks of all stages, and so is its failure."""

from dataclasses import replace

import pytest

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.base import Done, Sampled
from jetway.runtime.executor.pipeline import tie_of
from jetway.runtime.executor.ranks import Ranks
from tests.support.thread_ranks import Meeting

SAMPLED = Sampled([5], {}, {}, copy_wait_s=0.25)
OWN = Sampled((), {}, {}, copy_wait_s=0.5)


class Failing:
    """A launch."""

    def wait(self) -> Sampled:
        raise EngineFailed("no memory")


def test_earlier_stages_hear_what_is_sampled_before_anybody_waits_for_it_there() -> None:
    """Two stages of two ranks; the wait for copies is each rank's own."""
    ties = [tie_of(ranks, first_of_last_stage=2) for ranks in Meeting(4).ranks()]
    last = [tie(Done(SAMPLED)) for tie in ties[2:]]
    assert [tie(Done(OWN)).wait() for tie in ties[:2]] == [replace(SAMPLED, copy_wait_s=0.5)] * 2
    assert [launch.wait() for launch in last] == [SAMPLED] * 2


def test_a_failure_of_the_last_stage_is_one_of_all() -> None:
    first, last = (tie_of(ranks, first_of_last_stage=1) for ranks in Meeting(2).ranks())
    for launch in (last(Failing()), first(Done(OWN))):
        with pytest.raises(EngineFailed, match="^no memory$"):
            launch.wait()


@pytest.mark.parametrize("ranks", [None, *Meeting(2).ranks()], ids=["no ranks", "rank 0", "rank 1"])
def test_one_stage_tells_nobody(ranks: Ranks | None) -> None:
    launch = Done(SAMPLED)
    assert tie_of(ranks, first_of_last_stage=0)(launch) is launch
