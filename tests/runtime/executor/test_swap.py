"""Swap on a tiny model: the same bits as without it, in f32 and in u8, and the same bytes in every block."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jetway.builder.manifest import CONFIG_FILE
from jetway.runtime.executor.base import Int32Array
from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_model import PagedModel, Resources
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import Job
from tests.runtime.executor.scheduled import Driver, Room, undisturbed

pytestmark = pytest.mark.timeout(60)  # the first test builds the engine

# The log-probabilities of the best twenty stand for the bits of all logits.
BITS = SamplingParams(temperature=0.0, ignore_eos=True, logprobs=20)
DRAWN = SamplingParams(temperature=0.8, top_p=0.95, seed=11, ignore_eos=True)


class WatchedEngine(OpenVinoEngine):
    """Remembers the bytes of each block that goes to the host, and compares when they come back."""

    def __init__(self, model: PagedModel) -> None:
        super().__init__(model)
        self._device = model.pools.device
        self._sent: dict[int, list[bytes]] = {}
        self.num_returned = 0

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        for device, host in zip(device_blocks, host_blocks, strict=True):
            self._sent[host] = self._bytes_of(device)
        super().copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        super().copy_in(host_blocks, device_blocks)
        for host, device in zip(host_blocks, device_blocks, strict=True):
            assert self._bytes_of(device) == self._sent[host]
            self.num_returned += 1

    def _bytes_of(self, block: np.int32) -> list[bytes]:
        """Every tensor's part of a device block."""
        return [tensor[block].tobytes() for tensor in self._device]


def prompt_of(num_tokens: int, *, first: int) -> list[int]:
    return [(first + 7 * i) % 250 + 3 for i in range(num_tokens)]


def jobs_of(sampling: SamplingParams) -> list[Job]:
    """Three to six blocks each."""
    return [Job(prompt_of(70 + 24 * number, first=31 * number), 30, sampling) for number in range(4)]


@pytest.fixture(scope="module", params=["f32", "u8"])
def engine(
    request: pytest.FixtureRequest, tiny_engine_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> WatchedEngine:
    """The tiny engine, by the type of its cache, which is chosen when a model is loaded."""
    directory = tmp_path_factory.mktemp("engines") / request.param
    shutil.copytree(tiny_engine_directory, directory)
    config = json.loads((directory / CONFIG_FILE).read_text())
    config["jetway"]["kv_cache_dtype"] = request.param
    (directory / CONFIG_FILE).write_text(json.dumps(config))
    return WatchedEngine.load(directory, Resources(num_device_blocks=32, num_host_blocks=64))


def test_a_request_displaced_again_and_again_keeps_its_bits(engine: WatchedEngine) -> None:
    """One slot: the request computes alone in every step, displaced or not, so even u8 owes the same bits.

    It is displaced between the chunks of its prompt and while it decodes.
    """
    low = Job(prompt_of(75, first=4), 40, BITS)
    alone = Driver(engine, Room(num_device_blocks=8, max_num_seqs=1, budget=40))
    alone.add("low", low)
    alone.run()

    driver = Driver(engine, Room(num_device_blocks=8, num_host_blocks=8, max_num_seqs=1, budget=40))
    driver.add("low", low)
    num_added = 0
    while driver.step():
        if len(driver.plans) % 7 == 1:
            driver.add(f"high{num_added}", Job(prompt_of(150, first=90 + num_added), 2), "high")
            num_added += 1
    assert driver.sampled("low") == alone.sampled("low")
    assert driver.counters.num_preemptions >= 5
    assert driver.counters.num_recomputed_tokens == 0
    assert engine.num_returned >= driver.counters.num_copied_in_blocks > 5


def test_the_same_schedule_gives_the_same_bits(engine: WatchedEngine) -> None:
    """Batches, swap and prefix sharing included."""
    runs = []
    for _ in range(2):
        driver = Driver(engine, Room(num_device_blocks=9, num_host_blocks=32))
        for number, job in enumerate(jobs_of(BITS)):
            driver.add(str(number), job, n=2)
        driver.run()
        runs.append(driver)
    first, second = runs
    assert first.plans == second.plans
    assert first.results == second.results
    assert first.counters.num_copied_in_blocks > 0


@pytest.mark.parametrize(
    "room",
    [
        Room(num_device_blocks=7, num_host_blocks=64),
        Room(num_device_blocks=7, num_host_blocks=64, write_through=True),
        Room(num_device_blocks=7, num_host_blocks=3),
        Room(num_device_blocks=7, mode=PreemptionMode.RECOMPUTE),
        Room(num_device_blocks=6, num_host_blocks=64, budget=40),
    ],
    ids=["swap", "write through", "small host", "recompute", "room for one"],
)
@pytest.mark.parametrize("engine", ["f32"], indirect=True)
def test_sequences_under_pressure_get_the_undisturbed_tokens(engine: WatchedEngine, room: Room) -> None:
    """Of every n: the noise of a drawn token depends on the sequence and the position alone."""
    jobs = [job for sampling in (replace(BITS, logprobs=None), DRAWN) for job in jobs_of(sampling)]
    expected = undisturbed(engine, jobs, num_device_blocks=32, n=2)
    driver = Driver(engine, room)
    for number, job in enumerate(jobs):
        driver.add(str(number), job, n=2)
    driver.run()
    for number in range(len(jobs)):
        for index in range(2):
            assert driver.tokens(str(number), index) == expected.tokens(str(number), index)
    counters = driver.counters
    assert counters.num_preemptions > 0
    assert (counters.num_recomputed_tokens == 0) == (room.num_host_blocks == 64)
