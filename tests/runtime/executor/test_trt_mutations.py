"""Every mutation of a TensorRT step is caught, within a few hundred random steps: by the interpreter, or by a token.

Not by an assertion of what is tested; those are shown in test_trt_bindings.
"""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutations import MUTATIONS
from tests.runtime.executor.random_mix import RandomMix
from tests.support.trt_engine import InterpretedEngine, layout_of
from tests.support.trt_interpreter import Interpreter, Sizes
from tests.support.trt_llama import Llama
from tests.support.trt_references import Reference

pytestmark = pytest.mark.timeout(120)  # the first test asks Hugging Face

NUM_STEPS = 400


@pytest.fixture(scope="module")
def model(step_checkpoint: Path) -> Llama:
    return Llama(step_checkpoint)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_is_caught(name: str, model: Llama, step_references: list[Reference]) -> None:
    mutation = MUTATIONS[name]
    interpreter = Interpreter(model, Sizes(), pool_fill=mutation.pool_fill)
    engine = InterpretedEngine(interpreter, layout_of(model, interpreter), 60, mutation)
    mix = RandomMix(engine, step_references, seed=2)
    with pytest.raises(AssertionError) as caught:
        mix.run(NUM_STEPS)
    assert Path(caught.traceback[-1].path).is_relative_to(ROOT / "tests")
