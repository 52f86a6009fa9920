"""A step's calls one by one, what runs beside what, profiles, and failures on the device."""

import sys
from pathlib import Path

import numpy as np
import pytest

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.steps import Slots
from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from jetway.runtime.executor.tensorrt.pools import SlabPools
from jetway.scheduler.plan import StepPlan
from tests.runtime.executor.driving import Job, generate, make_plan, make_start
from tests.runtime.executor.tensorrt.conftest import NUM_HOST_BLOCKS, SIZES
from tests.support.cuda_races import RaceFound
from tests.support.cuda_stand_in import Call, StandInDevice, StandInStream
from tests.support.tensorrt_stand_in import Context, StandInTensorRt
from tests.support.trt_llama import Llama
from tests.support.trt_served import load_stand_in, settings_of

PROMPT = [5, 6, 7, 8, 9, 10]
COMPUTE, INPUTS, COPIES = "stream 1", "stream 2", "stream 3"


def kinds(calls: list[Call]) -> list[tuple[str, str]]:
    """Where each was made, and what it is."""
    return [(call.where, call.what) for call in calls]


def waits(calls: list[Call]) -> list[tuple[str, object]]:
    """Which stream waits for which."""
    return [(call.where, call.details[0]) for call in calls if call.what == "wait"]


def after(device: StandInDevice, slots: Slots, plan: StepPlan) -> list[Call]:
    """The calls that running the plan makes."""
    device.calls.clear()
    slots.run(plan)
    return list(device.calls)


def test_a_step_is_one_copy_one_execution_and_the_sampler(engine: TensorRtEngine, device: StandInDevice) -> None:
    calls = after(device, Slots(engine), make_plan(1, starts=[make_start(0, PROMPT, [3, 4])], rows=[(0, 6)]))
    assert kinds(calls) == [
        (COMPUTE, "record"),
        (COMPUTE, "record"),
        (INPUTS, "copy"),
        (INPUTS, "record"),
        (COMPUTE, "wait"),
        (COMPUTE, "execute"),
        (COMPUTE, "record"),
        (COMPUTE, "torch"),
        (COMPUTE, "record"),
        (COMPUTE, "synchronize"),
    ]
    copied, executed = calls[2], calls[5]
    assert copied.details == ("host memory 1+0", "device memory 2+0", 256 * 7)  # seven inputs, 256 bytes each
    assert executed.details == (
        0,
        ("input_ids", "device memory 2+0", (6,)),
        ("position_ids", "device memory 2+256", (6,)),
        ("last_token_ids", "device memory 2+512", (1,)),
        ("context_lengths", "device memory 2+768", (1,)),
        ("sequence_length", "device memory 2+1024", (1,)),
        ("kv_cache_block_offsets", "device memory 2+1280", (1, 1, 2, 16)),
        ("cache_indirection", "device memory 2+1536", (1, 1, 64)),
        ("logits", "device memory 4+0", (1, 304)),
    )


def test_a_chunk_before_the_last_samples_nothing_and_is_waited_for(
    engine: TensorRtEngine, device: StandInDevice
) -> None:
    calls = after(device, Slots(engine), make_plan(1, starts=[make_start(0, PROMPT, [3, 4])], rows=[(0, 4)]))
    assert kinds(calls)[-4:] == [(COMPUTE, what) for what in ("execute", "record", "record", "synchronize")]


def test_a_full_block_goes_to_the_host_beside_the_steps_that_read_it(
    engine: TensorRtEngine, device: StandInDevice
) -> None:
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(0, PROMPT, [3, 4])], rows=[(0, 6)]))
    for step in (2, 3):
        slots.run(make_plan(step, rows=[(0, 1)]))
    beside = after(device, slots, make_plan(4, copies_out=[(3, 0)], rows=[(0, 1)], grow=[(0, 5)]))
    assert (COPIES, "copy") in kinds(beside) and waits(beside) == [(COMPUTE, INPUTS)]


def test_a_block_leaves_before_it_is_written_and_arrives_before_it_is_read(
    engine: TensorRtEngine, device: StandInDevice
) -> None:
    slots = Slots(engine)
    slots.run(make_plan(1, starts=[make_start(0, PROMPT, [3, 4])], rows=[(0, 6)]))
    swap = make_plan(
        2,
        releases=[0],
        copies_out=[(3, 0), (4, 1)],
        starts=[make_start(0, PROMPT[::-1], [4, 3])],
        rows=[(0, 6)],
    )
    assert waits(after(device, slots, swap)) == [(COPIES, COMPUTE), (COMPUTE, COPIES), (COMPUTE, INPUTS)]
    resume = make_plan(3, copies_in=[(0, 7)], starts=[make_start(1, PROMPT, [7, 8], computed=4)], rows=[(0, 1), (1, 2)])
    assert waits(after(device, slots, resume)) == [(COMPUTE, COPIES), (COMPUTE, INPUTS)]


def launch_a_swap_behind_a_step(engine: TensorRtEngine) -> None:
    """Of two blocks that the step writes one goes to the host and is kept, the other is filled from there."""
    slots = Slots(engine)
    plans = [
        make_plan(1, starts=[make_start(0, PROMPT, [3, 4])], rows=[(0, 6)]),
        make_plan(2, releases=[0], copies_out=[(3, 0)], copies_in=[(1, 4)]),
        make_plan(3, copies_in=[(0, 7)], starts=[make_start(1, PROMPT, [7, 8], computed=4)], rows=[(1, 2)]),
    ]
    steps = [slots.begin(plan) for plan in plans]
    first, _ = [slots.collect(launched) for launched in [slots.launch(step) for step in steps[:2]]]
    assert slots.collect(slots.launch(steps[2])).tokens == first.tokens


def test_copies_wait_for_steps_that_still_need_their_blocks(
    engine: TensorRtEngine, device: StandInDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch_a_swap_behind_a_step(engine)
    assert waits(list(device.calls))[1:3] == [(COPIES, COMPUTE)] * 2
    monkeypatch.setattr(SlabPools, "after", lambda self, step, compute: None)
    with pytest.raises(RaceFound, match="the copy of device .* which may still be written by a step on stream 1"):
        launch_a_swap_behind_a_step(engine)


def test_each_step_runs_in_the_smallest_profile_that_takes_it(
    directory: Path, model: Llama, device: StandInDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", StandInTensorRt([(model, device)], SIZES, profiles=[4, 16, 64]))
    engine = load_stand_in(directory, settings_of(model, SIZES, NUM_HOST_BLOCKS), device)
    jobs = [Job([7] * 9, 3), Job([9] * 8, 3)]
    generate(engine, jobs)
    profiles = [call.details[0] for call in device.calls if call.what == "execute"]
    assert profiles == [2, 0, 0]


def test_a_step_that_tensorrt_refuses_fails(engine: TensorRtEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "execute_async_v3", lambda self, handle: False)
    with pytest.raises(EngineFailed, match="TensorRT: the step was not taken"):
        generate(engine, [Job(PROMPT, 1)])


def test_errors_of_the_device_are_the_engines(engine: TensorRtEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(StandInStream, "copy", fail)
    blocks = np.array([1], np.int32)
    for call, what in ((engine.copy_out, "a copy to the host pool"), (engine.copy_in, "a copy to the device pool")):
        with pytest.raises(EngineFailed, match=f"{what} failed on the GPU: CUDA error"):
            call(blocks, blocks)
    with pytest.raises(EngineFailed, match="the step failed on the GPU: CUDA error"):
        generate(engine, [Job(PROMPT, 1)])
