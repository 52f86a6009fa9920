"""Every way to get the order, or the life of memory, wrong is caught within a few hundred random plans, and named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from jetway.runtime.executor.base import Launch, Sampled, SamplingState, StepBatch
from jetway.runtime.executor.tensorrt.contexts import EngineContexts
from jetway.runtime.executor.tensorrt.device import Device, Stream
from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from jetway.runtime.executor.tensorrt.inputs import InputBuffers
from jetway.runtime.executor.tensorrt.launch import StepLaunch
from jetway.runtime.executor.tensorrt.pools import StepBlocks
from jetway.runtime.executor.tensorrt.runner import StepRunner
from jetway.runtime.executor.tensorrt.sampler import StepSampler
from jetway.runtime.executor.tensorrt.sampling import Choice
from jetway.runtime.executor.trt_bindings import BoundStep
from jetway.runtime.executor.trt_tensors import Tensor
from tests.runtime.executor.random_mix import RandomMix
from tests.support.cuda_stand_in import StandInDevice, StandInEvent, StandInStream
from tests.support.trt_references import Reference

pytestmark = pytest.mark.timeout(120)  # the first test asks Hugging Face

NUM_STEPS = 400

make_buffers, send, run = InputBuffers.__init__, InputBuffers.send, EngineContexts.run
blocks_of, sample, launch = StepBlocks.of, StepRunner.sample, TensorRtEngine.launch
copy, record, wait, stream_of = StandInStream.copy, StandInStream.record, StandInStream.wait, StandInDevice.stream_of


class Fleeting(dict[str, Tensor]):
    """Arrays each of which is gone once the next is asked for."""

    def items(self) -> Any:
        return ((name, array.copy()) for name, array in super().items())


class Late(NamedTuple):
    """A choice that is made once it is asked for."""

    make: Callable[[], Choice | None]

    def report(self) -> Sampled:
        choice = self.make()
        return choice.report() if choice else Sampled((), {}, {})


class Fault(NamedTuple):
    """A method that does something else than it should, and what is said of it."""

    owner: type
    name: str
    wrong: Callable[..., Any]
    message: str


FAULTS: dict[str, Fault] = {}


def in_place_of(owner: type, name: str, message: str) -> Callable[[Callable[..., Any]], None]:
    """List the function as a fault, under its own name."""

    def add(wrong: Callable[..., Any]) -> None:
        FAULTS[wrong.__name__] = Fault(owner, name, wrong, message)

    return add


@in_place_of(StandInStream, "wait", "which may still be (written|read) by the copy of")
def no_event_is_waited_for(self: StandInStream, event: StandInEvent) -> None:
    pass


@in_place_of(StandInStream, "record", "which may still be (written|read) by the copy of")
def events_are_recorded_before_the_copies(self: StandInStream) -> StandInEvent:
    event = record(self)
    event.place, event.known = 0, {}
    return event


@in_place_of(StepBlocks, "of", "which may still be (written|read) by (the copy of device|a step on stream 1)")
def a_row_is_taken_to_write_its_first_block_only(batch: StepBatch, tokens_per_block: int) -> StepBlocks:
    return blocks_of(replace(batch, position_ids=np.zeros_like(batch.position_ids)), tokens_per_block)


@in_place_of(StepBlocks, "of", "which may still be (written|read) by (the copy of|a step on stream 1)")
def a_row_is_taken_to_touch_its_last_block_only(batch: StepBatch, tokens_per_block: int) -> StepBlocks:
    lasts = batch.block_indices[batch.block_indices_begins[1:] - 1]
    touched = replace(batch, block_indices=np.repeat(lasts, np.diff(batch.block_indices_begins)))
    return blocks_of(touched, tokens_per_block)


@in_place_of(StandInStream, "copy", "a step on stream 1 .* which may still be written by the copy of host")
def copies_in_are_made_by_a_third_stream(self: StandInStream, target: torch.Tensor, source: torch.Tensor) -> None:
    into_pool = self.handle == 3 and str(self.device.place_of(source.data_ptr())).startswith("host")
    copy(self.device.stream() if into_pool else self, target, source)


@in_place_of(StandInStream, "copy", "the memory's end on the host frees .* may still be used by the copy of host")
def the_memory_that_inputs_are_sent_from_is_freed(
    self: StandInStream, target: torch.Tensor, source: torch.Tensor
) -> None:
    passing = self.device.pinned_zeros(source.nbytes).view(source.shape).copy_(source)
    copy(self, target, passing if self.handle == 2 else source)


@in_place_of(StandInDevice, "stream_of", "a step on stream 3 reads .* which may still be written by the copy of")
def a_step_runs_on_the_stream_of_the_copies(self: StandInDevice, handle: int) -> StandInStream:
    return stream_of(self, 3)


@in_place_of(StandInEvent, "synchronize", "the host's writing of host memory 1.* may still be read by the copy")
def a_step_returns_before_it_is_done(self: StandInEvent) -> None:
    self.stream.run(self.place)  # the host does not know


@in_place_of(
    StandInStream, "wait", "a step on stream 1 reads .* which may still be written by the copy of host memory 1"
)
def a_step_does_not_wait_for_its_inputs(self: StandInStream, event: StandInEvent) -> None:
    if event.stream.handle != 2:
        wait(self, event)


@in_place_of(InputBuffers, "__init__", "the host's writing of host memory 1.* may still be read by the copy")
def inputs_have_one_room_for_all_steps(
    self: InputBuffers, device: Device, dims: Mapping[str, int], num_steps: int
) -> None:
    make_buffers(self, device, dims, 1)


@in_place_of(StepRunner, "sample", "token .* of ")
def a_step_is_sampled_only_when_it_is_waited_for(
    self: StepRunner, step: BoundStep, states: Sequence[SamplingState]
) -> object:
    return Late(lambda: sample(self, step, states))


@in_place_of(StepRunner, "sample", "token .* of ")
def logits_are_read_only_when_they_are_waited_for(
    self: StepRunner, step: BoundStep, states: Sequence[SamplingState]
) -> object:
    sample(self, step, states)  # feeds the next step
    return Late(lambda: sample(self, step, states))


@in_place_of(StepSampler, "fill", "token .* of ")
def tokens_that_the_device_alone_knows_are_not_filled_in(
    self: StepSampler, step: BoundStep, input_ids: torch.Tensor
) -> None:
    pass


@in_place_of(TensorRtEngine, "launch", "token .* of ")
def tokens_are_sampled_before_those_before_them_are_known(self: TensorRtEngine, batch: StepBatch) -> Launch:
    launched = launch(self, batch)
    assert isinstance(launched, StepLaunch)
    launched.sample()
    return launched


@in_place_of(InputBuffers, "send", "the host's writing of host memory 1.* may still be read by the copy")
def all_inputs_go_through_one_place(
    self: InputBuffers, tensors: Mapping[str, Tensor], stream: Stream
) -> dict[str, torch.Tensor]:
    return {name: send(self, {name: tensor}, stream)[name] for name, tensor in tensors.items()}


@in_place_of(EngineContexts, "run", "a host input has changed, or was freed")
def host_inputs_are_freed_before_the_step_is_enqueued(
    self: EngineContexts, device: Mapping[str, torch.Tensor], host: Mapping[str, Tensor], logits: torch.Tensor
) -> None:
    run(self, device, Fleeting(host), logits)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_is_caught(
    name: str, request: pytest.FixtureRequest, tiny_references: list[Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(fault.owner, fault.name, fault.wrong)
    engine: TensorRtEngine = request.getfixturevalue("engine")
    with pytest.raises(AssertionError, match=fault.message):
        RandomMix(engine, tiny_references, seed=4).run(NUM_STEPS)
