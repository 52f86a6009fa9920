"""Tiny checkpoints and engines, made once."""

import shutil
from pathlib import Path

import pytest
import torch

from jetway.builder import offline
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from tests.support.checkpoints import make_llama_checkpoint

offline.enforce()  # before a test module imports openvino
torch.set_num_threads(1)  # for models this small, a second thread costs more than it does


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers in Hugging Face's layout. Tests share it and leave it as it is."""
    return make_llama_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def tiny_engine(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its engine. Tests share it and leave it as it is."""
    engine = tmp_path_factory.mktemp("engines") / "tiny"
    build(BuildSpec(model_dir=tiny_checkpoint, output_dir=engine), Progress(lambda text: None), force=False)
    return engine


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
