"""Plans launched ahead by one thread and collected by another, as a session does it, give the same results."""

import threading
from dataclasses import replace
from queue import SimpleQueue

import pytest

from jetway.runtime.executor.steps import Launched, Slots
from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import Job
from tests.runtime.executor.scheduled import Driver, Room, untimed
from tests.support.trt_references import Reference

# Every parameter that looks at the tokens before, or at how many there are.
LOOKING_BACK = SamplingParams(
    temperature=0.9,
    seed=5,
    top_p=0.95,
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=0.2,
    stop_token_ids=tuple(range(0, 300, 7)),
    min_tokens=4,
    logprobs=2,
)


def scheduled(engine: TensorRtEngine, references: list[Reference], depth: int) -> Driver:
    """In a pool that is too small for all."""
    driver = Driver(engine, Room(num_device_blocks=16, num_host_blocks=60, max_num_seqs=4, budget=24, depth=depth))
    for number, reference in enumerate(references[:24]):
        driver.add(str(number), Job(reference.prompt, 16, LOOKING_BACK), "high" if number % 3 == 2 else "low")
        driver.step()
    driver.run()
    return driver


def decided(result: StepResult) -> StepResult:
    """Without what depends on when a row was found to have ended: then it was computed, or was not."""
    return replace(untimed(result), skipped=sorted(result.skipped), logprobs={})


def run_by_two_threads(engine: TensorRtEngine, plans: list[StepPlan]) -> list[StepResult]:
    slots, room = Slots(engine), threading.Semaphore(engine.max_launches)
    launched: SimpleQueue[Launched] = SimpleQueue()

    def launch() -> None:
        for plan in plans:
            room.acquire()
            launched.put(slots.launch(slots.begin(plan)))

    launching = threading.Thread(target=launch)
    launching.start()
    results = []
    for _ in plans:
        results.append(slots.collect(launched.get(timeout=10)))
        room.release()
    launching.join()
    return results


@pytest.mark.timeout(120)  # the references are Hugging Face's
def test_results_are_those_of_one_step_after_the_other(
    engine: TensorRtEngine, tiny_references: list[Reference]
) -> None:
    ahead, behind = (scheduled(engine, tiny_references, depth) for depth in (1, 0))
    assert ahead.counters.num_preemptions and any(result.skipped for result in ahead.results)
    for number in range(24):
        assert ahead.tokens(str(number)) == behind.tokens(str(number))
    by_two = run_by_two_threads(engine, ahead.plans)
    assert [decided(result) for result in by_two] == [decided(result) for result in ahead.results]
