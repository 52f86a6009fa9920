"""Engines of several ranks on the stand-ins, each rank with its own GPU, scheduled by rank 0: the tokens of Hugging Face.

A rank's weights are its file of the builder's conversion. What the ranks' engines do among themselves, the adding up of
shares and the handing on of hidden states, is the stand-in's.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file, save_file

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.tensorrt import load
from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from jetway.runtime.executor.tensorrt.sampler import StepSampler
from jetway.runtime.executor.tensorrt.workspace import allocate_workspace
from jetway.runtime.executor.trt_bindings import AllReduceWorkspace
from jetway.runtime.executor.trt_rank import RankPart
from tests.builder.tensorrt.conversions import converted
from tests.runtime.executor.random_mix import RandomMix
from tests.runtime.executor.ranked import ranked
from tests.support import trt_ranks
from tests.support.tensorrt_stand_in import StandInTensorRt
from tests.support.thread_ranks import Meeting
from tests.support.trt_interpreter import Sizes
from tests.support.trt_llama import Floats, Llama
from tests.support.trt_ranks import Network, RankLlama, workspace_of
from tests.support.trt_references import Reference
from tests.support.trt_served import load_stand_in, make_device, settings_of, write_directory

pytestmark = pytest.mark.timeout(120)  # the first test asks Hugging Face

SPLITS = [(2, 1), (1, 2), (2, 2), (1, 3)]  # tp_size and pp_size
NUM_STEPS = 300
NUM_HOST_BLOCKS = 60


class Mapping(SimpleNamespace):
    """TensorRT-LLM's."""


class CustomAllReduceHelper:
    """TensorRT-LLM's."""

    @staticmethod
    def max_workspace_size_auto(tp_size: int) -> int:
        return 1 << 20

    @staticmethod
    def allocate_workspace(mapping: Mapping, size: int) -> tuple[list[object], torch.Tensor]:
        assert mapping.world_size == mapping.tp_size * mapping.pp_size
        return [], torch.tensor(workspace_of(mapping.rank, mapping.tp_size), dtype=torch.int64)


class Group:
    """An engine of tp_size * pp_size ranks. `spoil` may change the ranks' files before the engine is built of them."""

    def __init__(
        self,
        checkpoint: Path,
        directory: Path,
        tp_size: int,
        pp_size: int,
        spoil: Callable[[Path], None] = lambda files: None,
    ) -> None:
        options = {"tp_size": tp_size, "pp_size": pp_size, "dtype": "float32", "kv_cache_dtype": "float32"}
        files = converted(checkpoint, directory / "converted", **options)
        spoil(files)
        network, ranks = Network(), range(tp_size * pp_size)
        self.models = [RankLlama(checkpoint, files, rank, tp_size, network) for rank in ranks]
        self.free_bytes = [1 << 20 for _ in ranks]
        self._meeting = Meeting(len(ranks))
        self._directory = write_directory(directory, Llama(checkpoint), Sizes(), tp_size, pp_size)

    @contextmanager
    def loaded(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Iterator[list[TensorRtEngine]]:
        """By rank. `changes` are of the settings."""
        with ExitStack() as stack:
            workers = [stack.enter_context(ThreadPoolExecutor(1)) for _ in self.models]
            devices = [make_device(model, Sizes(), worker) for model, worker in zip(self.models, workers, strict=True)]
            for device, free_bytes in zip(devices, self.free_bytes, strict=True):
                device.free_bytes = free_bytes
            parts = list(zip(self.models, devices, strict=True))
            monkeypatch.setitem(sys.modules, "tensorrt", StandInTensorRt(parts, Sizes()))
            settings = replace(settings_of(self.models[0], Sizes(), NUM_HOST_BLOCKS), **changes)
            threads = stack.enter_context(ThreadPoolExecutor(len(devices)))
            loading = [
                threads.submit(load_stand_in, self._directory, settings, device, ranks)
                for device, ranks in zip(devices, self._meeting.ranks(), strict=True)
            ]
            yield [each.result() for each in loading]

    def run(self, engines: Sequence[TensorRtEngine], references: list[Reference], num_steps: int) -> RandomMix:
        """Raises what goes wrong in rank 0, or in another."""
        with ranked(self._meeting, engines) as group:
            mix = RandomMix(engines[0], references, seed=7, new_slots=group.slots)
            mix.run(num_steps)
        assert group.failures == []
        return mix


MakeGroup = Callable[..., Group]  # of tp_size, pp_size and perhaps `spoil`


@pytest.fixture
def make_group(step_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeGroup:
    monkeypatch.setitem(sys.modules, "tensorrt_llm", SimpleNamespace(Mapping=Mapping))
    monkeypatch.setitem(sys.modules, "tensorrt_llm.plugin", SimpleNamespace())
    helper = SimpleNamespace(CustomAllReduceHelper=CustomAllReduceHelper)
    monkeypatch.setitem(sys.modules, "tensorrt_llm.plugin.plugin", helper)
    return partial(Group, step_checkpoint, tmp_path)


@pytest.mark.parametrize(("tp_size", "pp_size"), SPLITS)
def test_random_mixes_give_the_tokens_of_hugging_face(
    tp_size: int,
    pp_size: int,
    make_group: MakeGroup,
    step_references: list[Reference],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = make_group(tp_size, pp_size)
    with group.loaded(monkeypatch) as engines:
        mix = group.run(engines, step_references, NUM_STEPS)
    assert sum(counters.num_copied_in_blocks for counters in mix.counters) > 0


def test_all_ranks_have_as_many_blocks_as_the_one_with_least_room(
    make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = make_group(2, 2)
    group.free_bytes[1] = 1 << 18
    with group.loaded(monkeypatch, num_device_blocks=None) as engines:
        described = [engine.describe() for engine in engines]
    assert described == [described[0]] * 4 and described[0].num_stages == 2
    assert described[0].num_device_blocks == int(0.9 * (1 << 18)) // described[0].block_bytes


def test_what_fails_in_the_last_stage_fails_in_all(
    make_group: MakeGroup, step_references: list[Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: StepSampler, *arguments: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(StepSampler, "sample", fail)
    group = make_group(1, 2)
    with group.loaded(monkeypatch) as engines, pytest.raises(EngineFailed, match="the step failed on the GPU: CUDA"):
        group.run(engines, step_references, NUM_STEPS)


def other_heads(files: Path) -> None:
    """Rank 1 has those of rank 0."""
    shutil.copy(files / "rank0.safetensors", files / "rank1.safetensors")


def other_layers(files: Path) -> None:
    """Two stages of one layer each have each other's."""
    first, second = (load_file(files / f"rank{rank}.safetensors") for rank in (0, 1))
    for name in [name for name in first if ".layers." in name]:
        first[name], second[name] = second[name], first[name]
    for rank, weights in enumerate((first, second)):
        save_file(weights, files / f"rank{rank}.safetensors")


@pytest.mark.parametrize(("split", "spoil"), [((2, 1), other_heads), ((1, 3), other_layers)])
def test_weights_of_another_rank_are_caught(
    split: tuple[int, int],
    spoil: Callable[[Path], None],
    make_group: MakeGroup,
    step_references: list[Reference],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = make_group(*split, spoil)
    with group.loaded(monkeypatch) as engines, pytest.raises(AssertionError, match=r"token .* of "):
        group.run(engines, step_references, NUM_STEPS)


def test_shares_that_are_not_added_up_are_caught(
    make_group: MakeGroup, step_references: list[Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchanged(self: RankLlama, share: Floats) -> Floats:
        return share

    monkeypatch.setattr(RankLlama, "add_up", unchanged)
    group = make_group(2, 1)
    with group.loaded(monkeypatch) as engines, pytest.raises(AssertionError, match=r"token .* of "):
        group.run(engines, step_references, NUM_STEPS)


def test_the_workspace_of_another_rank_is_caught(
    make_group: MakeGroup, step_references: list[Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_rank_1(part: RankPart, num_devices: int) -> AllReduceWorkspace:
        return allocate_workspace(replace(part, rank=1), num_devices)

    monkeypatch.setattr(load, "allocate_workspace", of_rank_1)
    monkeypatch.setattr(trt_ranks, "TIMEOUT_S", 0.01)  # rank 1 waits in vain for rank 0
    group = make_group(2, 1)
    with group.loaded(monkeypatch) as engines, pytest.raises(AssertionError, match="the workspace is another rank's"):
        group.run(engines, step_references, NUM_STEPS)
