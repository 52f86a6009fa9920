"""The real model under the real scheduler with too little memory: whatever happens to a request, its tokens stay.

The tokens expected are Hugging Face's (tests/data/greedy_smollm2.jsonl), in f32 and with margins that no batch moves.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_model import Resources
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.stats import PreemptionReason
from tests.conftest import ROOT
from tests.runtime.executor.driving import Job
from tests.runtime.executor.scheduled import Driver, Room, mixes

pytestmark = pytest.mark.timeout(120)  # the first test loads the engine

STORED = [json.loads(line) for line in (ROOT / "tests/data/greedy_smollm2.jsonl").read_text().splitlines()]
JOBS = [Job(line["prompt_ids"], len(line["output_ids"])) for line in STORED]  # by length
OUTPUTS = [line["output_ids"] for line in STORED]
LOW, HIGH = (28, 25, 22, 19, 16), (20, 10, 17)  # 24 and 6 blocks of KV; one of HIGH comes every few steps
PREFIXED = 24  # four full blocks of prompt and a bit


@pytest.fixture(scope="module")
def engine(demo_engine: Path) -> Engine:
    return OpenVinoEngine.load(demo_engine, Resources(num_device_blocks=12, num_host_blocks=64))


def outputs(driver: Driver, numbers: Iterable[int]) -> list[list[int]]:
    return [driver.tokens(str(number)) for number in numbers]


def run_under_pressure(engine: Engine, room: Room) -> Driver:
    """Low requests compete for blocks, high ones displace them; all must get their tokens."""
    driver = Driver(engine, room)
    for number in LOW:
        driver.add(str(number), JOBS[number])
    for number in HIGH:
        for _ in range(6):
            driver.step()
        driver.add(str(number), JOBS[number], "high")
    driver.run()
    assert outputs(driver, LOW + HIGH) == [OUTPUTS[number] for number in LOW + HIGH]
    return driver


def test_displaced_swapped_and_resumed_requests_give_the_undisturbed_tokens(engine: Engine) -> None:
    driver = run_under_pressure(engine, Room(num_device_blocks=12, num_host_blocks=64))
    counters = driver.counters
    assert counters.preemptions[PreemptionReason.PRIORITY, "swap"] > 0
    assert counters.preemptions[PreemptionReason.KV_FULL, "swap"] > 0
    assert counters.num_copied_out_blocks > 0 and counters.num_copied_in_blocks > 0
    assert counters.num_recomputed_tokens == 0
    assert any(mixes(plan) for plan in driver.plans)


def test_recomputed_requests_give_the_undisturbed_tokens(engine: Engine) -> None:
    counters = run_under_pressure(engine, Room(num_device_blocks=12, mode=PreemptionMode.RECOMPUTE)).counters
    assert counters.num_recomputed_tokens > 0
    assert (counters.num_copied_out_blocks, counters.num_copied_in_blocks) == (0, 0)


def test_sequences_of_one_request_meet_in_the_prefix_cache(engine: Engine) -> None:
    driver = Driver(engine, Room(num_device_blocks=12))
    driver.add("three", JOBS[PREFIXED], n=3)
    driver.run()
    assert [driver.tokens("three", index) for index in range(3)] == [OUTPUTS[PREFIXED]] * 3
    assert driver.num_cached_tokens("three") == [0, 128, 128]


def test_an_evicted_prefix_comes_back_from_the_host(engine: Engine) -> None:
    """A prefix that was hit is offloaded when others need its blocks; who asks for it later copies it in."""
    driver = Driver(engine, Room(num_device_blocks=9, num_host_blocks=64))
    for id in ("first", "again"):
        driver.add(id, JOBS[PREFIXED])
        driver.run()
    assert driver.counters.num_copied_out_blocks == 0
    driver.add("28", JOBS[28])
    driver.run()
    assert driver.counters.num_copied_out_blocks == 4
    driver.add("back", JOBS[PREFIXED])
    driver.run()
    assert driver.counters.num_copied_in_blocks == 4
    assert [driver.num_cached_tokens(id) for id in ("first", "again", "back")] == [[0], [128], [128]]
    assert [driver.tokens(id) for id in ("first", "again", "back")] == [OUTPUTS[PREFIXED]] * 3
    assert driver.tokens("28") == OUTPUTS[28]
