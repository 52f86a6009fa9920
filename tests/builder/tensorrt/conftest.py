"""A stand-in for TensorRT-LLM that workers find, and a checkpoint for it."""

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.checkpoints import make_checkpoint


@pytest.fixture
def fake_tensorrt_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the workers import as `tensorrt_llm`."""
    paths = [str(Path(__file__).with_name("fake")), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.delenv("FAKE_TENSORRT_LLM", raising=False)


@pytest.fixture(scope="session")
def plain_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama without a chat template, whose trial would start one more process. Tests leave it as it is."""
    directory = tmp_path_factory.mktemp("checkpoints") / "plain"
    return make_checkpoint(directory, "LlamaForCausalLM", {}, chat_template=None)
