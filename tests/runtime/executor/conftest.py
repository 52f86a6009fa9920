"""The engines that tests run against. Importing torch and OpenVINO is left to the tests that need them."""

from pathlib import Path

import pytest

from jetway.runtime.executor.base import Engine
from tests.runtime.executor.driving import make_simulated
from tests.support.checkpoints import make_llama_checkpoint
from tests.support.trt_references import Reference, references

NUM_DEVICE_BLOCKS = 64
NUM_HOST_BLOCKS = 8


def load(directory: Path, *, num_device_blocks: int = NUM_DEVICE_BLOCKS) -> Engine:
    from jetway.runtime.executor.openvino import OpenVinoEngine

    return OpenVinoEngine.load(
        directory, kv_cache_memory=0, num_device_blocks=num_device_blocks, num_host_blocks=NUM_HOST_BLOCKS
    )


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def tiny_references(tiny_checkpoint: Path) -> list[Reference]:
    return references(tiny_checkpoint, num_prompts=60, num_tokens=24)


@pytest.fixture(scope="session")
def tiny_engine_directory(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """A Llama of two layers and random weights, built."""
    from jetway.builder.progress import Progress
    from jetway.builder.spec import BuildSpec
    from jetway.builder.stages import build

    directory = tmp_path_factory.mktemp("engines") / "tiny"
    spec = BuildSpec(model_dir=tiny_checkpoint, output_dir=directory, max_batch_size=8, max_num_tokens=200)
    build(spec, Progress(lambda _: None), force=False)
    return directory


@pytest.fixture(scope="session")
def tiny_engine(tiny_engine_directory: Path) -> Engine:
    return load(tiny_engine_directory)


@pytest.fixture(scope="session")
def demo_openvino(demo_engine: Path) -> Engine:
    """The real model, with room for 256 blocks."""
    return load(demo_engine, num_device_blocks=256)


@pytest.fixture(params=["simulated", "tiny", "demo"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn; pools may hold what an earlier session left there."""
    if request.param == "simulated":
        return make_simulated()
    fixture = {"tiny": "tiny_engine", "demo": "demo_openvino"}[request.param]
    loaded: Engine = request.getfixturevalue(fixture)
    return loaded
