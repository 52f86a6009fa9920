"""A plan that begins, or is launched, while the one before it computes gives what it would have given after it."""

import random
import time
from dataclasses import replace

import numpy as np
import pytest

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.simulated import SimulatedBehaviour
from jetway.runtime.executor.simulated_pipeline import SimulatedPipeline
from jetway.runtime.executor.steps import Slots, Step
from jetway.runtime.executor.wire import result_to_proto
from jetway.scheduler.plan import StepResult
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import Job, make_description, make_plan, make_simulated, make_start
from tests.runtime.executor.launching import LaunchingEngine
from tests.runtime.executor.scheduled import Driver, Room, launched_ahead, untimed

BEHAVIOUR = SimulatedBehaviour(eos_probability=0.08, fail_on=999, verify_kv=True)
EOS = [0]


def scheduled(seed: int, depth: int = 1, num_micro_batches: int = 1) -> Driver:
    """Random requests of both levels, coming and going, in a pool that is too small for them; some of them fail."""
    rng = random.Random(seed)
    driver = Driver(
        make_simulated(BEHAVIOUR, eos=EOS),
        Room(
            num_device_blocks=20,
            num_host_blocks=8,
            max_num_seqs=4,
            budget=24,
            depth=depth,
            num_micro_batches=num_micro_batches,
        ),
    )
    for number in range(60):
        prompt = [rng.randrange(1, 900) for _ in range(rng.randint(1, 20))] + [999] * (rng.random() < 0.1)
        job = Job(prompt, rng.randint(1, 15), SamplingParams(temperature=0.0))
        driver.add(str(number), job, rng.choice(["high", "low", "low"]))
        for _ in range(rng.randrange(4)):
            driver.step()
        if rng.random() < 0.1:
            driver.abort(str(rng.randrange(number + 1)))
    driver.run()
    return driver


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_one_after_the_other(seed: int) -> None:
    """However late a plan completes: its successor has begun, and perhaps the one that answers its predecessor's result."""
    driver = scheduled(seed)
    assert any(result.skipped for result in driver.results)
    assert any(result.failures for result in driver.results)
    assert driver.counters.num_preemptions > 0
    slots = Slots(make_simulated(BEHAVIOUR, eos=EOS))

    def complete(step: Step) -> StepResult:
        return untimed(slots.collect(slots.launch(step)))

    begun = [slots.begin(plan) for plan in driver.plans[:2]]
    results = []
    for plan in driver.plans[2:]:
        results.append(complete(begun.pop(0)))
        begun.append(slots.begin(plan))
    results += [complete(step) for step in begun]
    assert results == driver.results


@pytest.mark.parametrize("seed", range(6))
def test_launches_ahead_give_the_results_of_one_after_the_other(seed: int) -> None:
    """Each step is launched before its predecessor's tokens are known, and some of its rows turn out to have ended."""
    driver = scheduled(seed)
    engine = LaunchingEngine(BEHAVIOUR, frozenset(EOS))
    results = launched_ahead(Slots(engine), driver, engine.max_launches)
    assert results == [result_to_proto(result) for result in driver.results]
    assert engine.num_pending > 0


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_pipeline_gives_the_results_of_one_step_after_the_other(seed: int, depth: int) -> None:
    driver = scheduled(seed, depth=depth, num_micro_batches=3)
    assert driver.counters.num_preemptions > 0
    engine = SimulatedPipeline(replace(make_description(), num_stages=3), frozenset(EOS), BEHAVIOUR)
    results = launched_ahead(Slots(engine), driver, engine.max_launches)
    assert results == [result_to_proto(result) for result in driver.results]


def test_what_fails_in_a_stage_fails_the_steps_that_wait() -> None:
    """A block that the pool does not have, and no step after it gives anything."""
    engine = SimulatedPipeline(replace(make_description(), num_stages=2))
    slots = Slots(engine)
    engine.copy_out(np.array([10_000]), np.array([0]))
    launched = slots.launch(slots.begin(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)])))
    time.sleep(0.01)  # now it would be through, too
    with pytest.raises(IndexError):
        slots.collect(launched)


def test_a_pipeline_refuses_a_token_that_it_has_not_sampled() -> None:
    slots = Slots(SimulatedPipeline(replace(make_description(), num_stages=2)))
    first = slots.begin(make_plan(1, starts=[make_start(0, [1, 2, 3], [4])], rows=[(0, 3)]))
    second = slots.begin(make_plan(2, rows=[(0, 1)]))
    slots.launch(first)
    with pytest.raises(EngineFailed, match="a token that the last one has not sampled"):
        slots.launch(second)
