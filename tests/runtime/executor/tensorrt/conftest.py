"""An engine on the stand-ins for TensorRT and the GPU. Importing torch is left to the tests that need it."""

import sys
from pathlib import Path

import pytest

from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from tests.support.cuda_stand_in import StandInDevice
from tests.support.tensorrt_stand_in import StandInTensorRt
from tests.support.trt_interpreter import Sizes
from tests.support.trt_llama import Llama
from tests.support.trt_served import load_stand_in, make_device, settings_of, write_directory

SIZES = Sizes(tokens_per_block=4, num_blocks=64, max_batch_size=8, max_num_tokens=64, max_seq_len=64)
NUM_HOST_BLOCKS = 60


@pytest.fixture(scope="session")
def model(tiny_checkpoint: Path) -> Llama:
    return Llama(tiny_checkpoint)


@pytest.fixture
def device(model: Llama) -> StandInDevice:
    return make_device(model, SIZES)


@pytest.fixture
def directory(tmp_path: Path, model: Llama, device: StandInDevice, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine's, and the TensorRT that loads it onto `device`."""
    monkeypatch.setitem(sys.modules, "tensorrt", StandInTensorRt([(model, device)], SIZES))
    return write_directory(tmp_path, model, SIZES)


@pytest.fixture
def engine(directory: Path, model: Llama, device: StandInDevice) -> TensorRtEngine:
    return load_stand_in(directory, settings_of(model, SIZES, NUM_HOST_BLOCKS), device)
