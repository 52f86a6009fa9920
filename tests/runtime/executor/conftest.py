"""The engines that tests run against. Importing torch and OpenVINO is left to the tests that need them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.simulated_pipeline import SimulatedPipeline
from tests.runtime.executor.driving import make_description, make_simulated
from tests.support.checkpoints import make_checkpoint, make_llama_checkpoint
from tests.support.trt_interpreter import Sizes
from tests.support.trt_llama import SMALL_MODEL, Llama
from tests.support.trt_references import Reference, references

NUM_DEVICE_BLOCKS = 64
NUM_HOST_BLOCKS = 8
SLOW_TO_SET_UP = {"tiny_checkpoint", "step_checkpoint", "demo_openvino", "engine"}


def load(directory: Path, *, num_device_blocks: int = NUM_DEVICE_BLOCKS) -> Engine:
    from jetway.runtime.executor.openvino import OpenVinoEngine
    from jetway.runtime.executor.openvino_model import Resources

    return OpenVinoEngine.load(
        directory, Resources(num_device_blocks=num_device_blocks, num_host_blocks=NUM_HOST_BLOCKS)
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test comes first imports torch and builds what all of them use: that takes longer than a test may."""
    for item in items:
        if SLOW_TO_SET_UP & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(90))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def tiny_references(tiny_checkpoint: Path) -> list[Reference]:
    return references(tiny_checkpoint, num_prompts=60, num_tokens=24)


@pytest.fixture(scope="session")
def step_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a Llama no two of whose sizes are alike."""
    return make_checkpoint(tmp_path_factory.mktemp("step_checkpoint"), "LlamaForCausalLM", SMALL_MODEL)


@pytest.fixture(scope="session")
def step_references(step_checkpoint: Path) -> list[Reference]:
    return references(step_checkpoint, num_prompts=60, num_tokens=24, block_size=Sizes().tokens_per_block)


@pytest.fixture(scope="session")
def tiny_engine_directory(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """A Llama of two layers and random weights, built."""
    return build_tiny(tiny_checkpoint, tmp_path_factory.mktemp("engines") / "tiny")


@pytest.fixture(scope="session")
def three_layers_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with three; its checkpoint lies beside it."""
    directory = tmp_path_factory.mktemp("three_layers")
    return build_tiny(make_llama_checkpoint(directory / "checkpoint", num_hidden_layers=3), directory / "engine")


def build_tiny(checkpoint: Path, directory: Path) -> Path:
    from jetway.builder.progress import Progress
    from jetway.builder.spec import BuildSpec
    from jetway.builder.stages import build

    spec = BuildSpec(model_dir=checkpoint, output_dir=directory, max_batch_size=8, max_num_tokens=200)
    build(spec, Progress(lambda _: None), force=False)
    return directory


@pytest.fixture(scope="session")
def tiny_engine(tiny_engine_directory: Path) -> Engine:
    return load(tiny_engine_directory)


@pytest.fixture(scope="session")
def demo_openvino(demo_engine: Path) -> Engine:
    """The real model, with room for 256 blocks."""
    return load(demo_engine, num_device_blocks=256)


@pytest.fixture(scope="session")
def stand_in_engine(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A TensorRtEngine without TensorRT and without a GPU."""
    from tests.support.tensorrt_stand_in import StandInTensorRt
    from tests.support.trt_served import load_stand_in, make_device, settings_of, write_directory

    model, sizes = Llama(tiny_checkpoint), Sizes(num_blocks=NUM_DEVICE_BLOCKS)
    device = make_device(model, sizes)
    directory = write_directory(tmp_path_factory.mktemp("stand-in"), model, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tensorrt", StandInTensorRt([(model, device)], sizes))
        return load_stand_in(directory, settings_of(model, sizes, NUM_HOST_BLOCKS), device)


@pytest.fixture(params=["simulated", "pipeline", "tiny", "demo", "stand-in"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn; pools may hold what an earlier session left there."""
    if request.param == "simulated":
        return make_simulated()
    if request.param == "pipeline":
        return SimulatedPipeline(replace(make_description(), num_stages=3))
    fixture = {"tiny": "tiny_engine", "demo": "demo_openvino", "stand-in": "stand_in_engine"}[request.param]
    loaded: Engine = request.getfixturevalue(fixture)
    return loaded
