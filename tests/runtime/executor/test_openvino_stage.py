"""A model whose layers are spread over ranks gives, token for token, what it gives in one process."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.base import StepBatch
from jetway.runtime.executor.noise import Float32Array
from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_cut import Stage
from jetway.runtime.executor.openvino_model import PagedModel, Resources
from jetway.runtime.executor.openvino_stage import OpenVinoStage
from jetway.runtime.executor.steps import Slots
from jetway.runtime.executor.wire import result_to_proto
from jetway.scheduler.plan import StepResult
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import GREEDY, Job, make_plan, make_start
from tests.runtime.executor.loopback import open_session, serving
from tests.runtime.executor.ranked import Ranked, ranked
from tests.runtime.executor.scheduled import Driver, Room, launched_ahead
from tests.support.thread_ranks import Meeting

pytestmark = pytest.mark.timeout(60)  # the first test builds the engine

RESOURCES = Resources(num_device_blocks=32, num_host_blocks=64, threads=1)
DRAWN = SamplingParams(temperature=0.9, top_p=0.95, seed=7, frequency_penalty=0.3, stop_token_ids=tuple(range(40, 60)))


class FailingModel(PagedModel):
    def infer(self, batch: StepBatch, hidden_states: Float32Array | None = None) -> NoReturn:
        raise EngineFailed("the step failed in OpenVINO: no memory")


class GatedModel(PagedModel):
    """Computes once the gate is open."""

    gate = threading.Event()

    def infer(self, batch: StepBatch, hidden_states: Float32Array | None = None) -> Float32Array:
        self.gate.wait()
        return super().infer(batch, hidden_states)


@pytest.fixture(scope="module")
def whole(three_layers_directory: Path) -> OpenVinoEngine:
    return OpenVinoEngine.load(three_layers_directory, RESOURCES)


@pytest.fixture(scope="module")
def pipelines(three_layers_directory: Path) -> Iterator[list[Ranked]]:
    """Of two stages and of three."""
    with ExitStack() as stack:
        groups = []
        for meeting in (Meeting(2), Meeting(3)):
            stages = [OpenVinoStage.load(three_layers_directory, RESOURCES, ranks) for ranks in meeting.ranks()]
            groups.append(stack.enter_context(ranked(meeting, stages)))
        yield groups
    assert [group.failures for group in groups] == [[], []]


def prompt_of(length: int, first: int) -> list[int]:
    """Lengths with the same `first` share a beginning."""
    return [(first * 31 + 7 * index) % 250 + 3 for index in range(length)]


arrivals = st.builds(
    lambda length, first, tokens, sampling, level, n: (Job(prompt_of(length, first), tokens, sampling), level, n),
    st.integers(1, 100),
    st.integers(0, 3),
    st.integers(1, 20),
    st.sampled_from([GREEDY, DRAWN]),
    st.sampled_from(["low", "low", "high"]),
    st.integers(1, 2),
)
# A request arrives, one of those that have come is aborted, or some steps pass.
happenings = st.lists(
    st.one_of(arrivals, arrivals, st.sampled_from(["abort"]), st.integers(1, 6)), min_size=4, max_size=24
)


def scheduled(engine: OpenVinoEngine, happens: list[object], *, depth: int, num_stages: int) -> Driver:
    """What the real scheduler plans of it for so many stages, with plans `depth` ahead of results."""
    room = Room(
        num_device_blocks=8,
        num_host_blocks=24,
        max_num_seqs=6,
        budget=80,
        depth=depth,
        num_micro_batches=num_stages,
    )
    driver = Driver(engine, room)
    num_added = 0
    for happening in happens:
        match happening:
            case int():
                for _ in range(happening):
                    driver.step()
            case "abort":
                driver.abort(str(num_added // 2))
            case (Job() as job, str() as level, int() as n):
                driver.add(str(num_added), job, level, n=n)
                num_added += 1
    driver.run()
    return driver


MIX: list[object] = [
    (Job(prompt_of(90, 1), 24, GREEDY), "low", 2),
    3,
    (Job(prompt_of(40, 2), 24, DRAWN), "low", 2),
    4,
    (Job(prompt_of(100, 3), 12, GREEDY), "high", 2),
    6,
    "abort",
    (Job(prompt_of(33, 1), 20, DRAWN), "high", 1),
    (Job(prompt_of(64, 2), 20, GREEDY), "low", 1),
]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_schedule_gives_the_tokens_of_one_process(whole: OpenVinoEngine, pipelines: list[Ranked], ahead: int) -> None:
    """Chunks of prompts, decodes, swap, n > 1, an abort; the stages are full, and a plan more may wait for the first."""
    for group in pipelines:
        num_stages = group.engine.max_launches
        driver = scheduled(whole, MIX, depth=num_stages - 1 + ahead, num_stages=num_stages)
        assert driver.counters.num_copied_in_blocks > 0
        assert any(sum(result.stopped) for result in driver.results)
        assert_gives(group, driver)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(happenings)
def test_any_schedule_gives_the_tokens_of_one_process(
    whole: OpenVinoEngine, pipelines: list[Ranked], happens: list[object]
) -> None:
    """Each is a session of its own, over pools that hold what the sessions before it left there."""
    for group in pipelines:
        num_stages = group.engine.max_launches
        assert_gives(group, scheduled(whole, happens, depth=num_stages, num_stages=num_stages))


def assert_gives(group: Ranked, driver: Driver) -> None:
    results = launched_ahead(group.slots(), driver, group.engine.max_launches)
    assert results == [result_to_proto(result) for result in driver.results]


def test_served_after_a_session_that_is_cut_off(whole: OpenVinoEngine, pipelines: list[Ranked], tmp_path: Path) -> None:
    """What it has launched is on the stages when the next one begins."""
    driver = scheduled(whole, MIX, depth=2, num_stages=2)
    group = pipelines[0]
    with serving(group.engine, tmp_path, new_followers=group.leader.new_session) as channel:
        cut_off = open_session(channel, 1)
        for plan in driver.plans[:2]:
            cut_off.send(plan)
        session = open_session(channel, 2)
        sent, results = deque(driver.plans), list[StepResult]()
        for num_known in driver.num_known:
            while len(results) < num_known:
                results.append(session.receive())
            session.send(sent.popleft())
        while len(results) < len(driver.plans):
            results.append(session.receive())
        session.close()
    assert [result_to_proto(result) for result in results] == [result_to_proto(result) for result in driver.results]


def test_a_copy_waits_for_the_steps_before_it(whole: OpenVinoEngine, three_layers_directory: Path) -> None:
    """A sequence goes to the host and comes back to another block, all of it planned while its prompt is computed."""
    prompt = prompt_of(32, 1)
    plans = [
        make_plan(1, starts=[make_start(0, [*prompt, 5], [4])], rows=[(0, 32)]),
        make_plan(2, releases=[0], copies_out=[(4, 9)]),
        make_plan(3, copies_in=[(9, 6)], starts=[make_start(1, [*prompt, 5], [6, 7], computed=32)], rows=[(1, 1)]),
    ]
    slots = Slots(whole)
    expected = [slots.run(plan).tokens for plan in plans]
    (alone,) = Meeting(1).ranks()
    slots = Slots(OpenVinoStage(GatedModel.load(three_layers_directory, RESOURCES), alone))
    steps = [slots.begin(plan) for plan in plans]
    launched = [slots.launch(step) for step in steps]
    GatedModel.gate.set()
    assert [slots.collect(step).tokens for step in launched] == expected


@pytest.mark.parametrize("failing", range(3))
def test_a_stage_that_fails_fails_the_step_of_all(three_layers_directory: Path, failing: int) -> None:
    meeting = Meeting(3)
    stages = [
        OpenVinoStage(
            (FailingModel if ranks.rank == failing else PagedModel).load(
                three_layers_directory, RESOURCES, Stage(ranks.rank, 3)
            ),
            ranks,
        )
        for ranks in meeting.ranks()
    ]
    with ranked(meeting, stages) as group:
        slots = group.slots()
        step = slots.launch(slots.begin(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)])))
        with pytest.raises(EngineFailed, match="the step failed in OpenVINO: no memory"):
            slots.collect(step)


def test_a_rank_that_dies_ends_all(three_layers_directory: Path) -> None:
    meeting = Meeting(2)
    first, _ = meeting.ranks()
    with ranked(Meeting(1), [OpenVinoStage.load(three_layers_directory, RESOURCES, first)]) as group:
        slots = group.slots()
        step = slots.launch(slots.begin(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)])))
        meeting.end()
        with pytest.raises(EngineFailed, match="the other ranks are gone"):
            slots.collect(step)
