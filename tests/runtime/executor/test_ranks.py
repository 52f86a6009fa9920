"""Ranks that each do the same steps on an engine of their own, as those that share its layers."""

from dataclasses import replace

from jetway.runtime.executor.simulated import SimulatedBehaviour, SimulatedEngine
from jetway.runtime.executor.simulated_pipeline import SimulatedPipeline
from jetway.runtime.executor.wire import result_to_proto
from tests.runtime.executor.driving import make_description, make_plan, make_simulated, make_start
from tests.runtime.executor.ranked import ranked
from tests.runtime.executor.scheduled import launched_ahead
from tests.runtime.executor.test_plans_ahead import BEHAVIOUR, EOS, scheduled
from tests.support.thread_ranks import Meeting


def pipeline() -> SimulatedPipeline:
    return SimulatedPipeline(replace(make_description(), num_stages=3), frozenset(EOS), BEHAVIOUR)


def simulated(eos_probability: float = 0.0) -> SimulatedEngine:
    return make_simulated(SimulatedBehaviour(eos_probability=eos_probability), eos=EOS)


def test_all_ranks_do_what_rank_0_does() -> None:
    """Several sessions: the KV of each rank is that of its own copies and steps, and its tokens are compared."""
    with ranked(Meeting(3), [pipeline() for _ in range(3)]) as group:
        for seed in range(3):
            driver = scheduled(seed, depth=3, num_micro_batches=3)
            assert driver.counters.num_copied_in_blocks > 0
            assert any(result.skipped for result in driver.results)
            expected = [result_to_proto(result) for result in driver.results]
            assert launched_ahead(group.slots(), driver, group.engine.max_launches) == expected
    assert group.failures == []


def test_a_rank_that_samples_other_tokens_ends_all() -> None:
    with ranked(Meeting(2), [simulated(), simulated(eos_probability=1.0)]) as group:
        slots = group.slots()
        slots.run(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)]))
        slots.run(make_plan(2, rows=[(0, 1)]))
        group.join()
    assert [failure.message for failure in group.failures] == [
        "this rank and rank 0 disagree on what was sampled before step 2"
    ]


def test_a_rank_that_finds_a_plan_illegal_ends_all() -> None:
    """Its engine is another: it has less room."""
    small = make_simulated(num_device_blocks=4)
    with ranked(Meeting(2), [make_simulated(), small]) as group:
        group.slots().run(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)]))
        group.join()
    assert [failure.message for failure in group.failures] == [
        "this rank and rank 0 disagree: device block 4 does not exist; there are 4"
    ]


def test_ranks_end_with_rank_0() -> None:
    meeting = Meeting(3)
    with ranked(meeting, [simulated() for _ in range(3)]) as group:
        meeting.end()
        group.join()
    assert [failure.message for failure in group.failures] == ["the other ranks are gone"] * 2


def test_a_session_ends_where_the_next_begins() -> None:
    """What it has launched is done by then; its slots are free."""
    with ranked(Meeting(2), [simulated() for _ in range(2)]) as group:
        tokens = []
        for _ in range(3):
            slots = group.slots()
            first = slots.launch(slots.begin(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)])))
            tokens.append(list(slots.collect(first).tokens))
    assert tokens[1:] == tokens[:-1]
    assert group.failures == []
