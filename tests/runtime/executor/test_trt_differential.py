"""Thousands of random steps through trt_bindings and the reference interpreter give the tokens of Hugging Face.

JETWAY_TRT_STEPS=20000 runs longer.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from jetway.scheduler.stats import PreemptionReason
from tests.runtime.executor.random_mix import RandomMix
from tests.support.trt_engine import InterpretedEngine, layout_of
from tests.support.trt_interpreter import Interpreter, Sizes
from tests.support.trt_llama import Llama
from tests.support.trt_references import Reference

NUM_STEPS = int(os.environ.get("JETWAY_TRT_STEPS", "2000"))


@pytest.mark.timeout(60 + NUM_STEPS // 20)
def test_random_mixes_give_the_tokens_of_hugging_face(step_checkpoint: Path, step_references: list[Reference]) -> None:
    model = Llama(step_checkpoint)
    interpreter = Interpreter(model, Sizes())
    engine = InterpretedEngine(interpreter, layout_of(model, interpreter), num_host_blocks=60)
    mix = RandomMix(engine, step_references, seed=1)
    mix.run(NUM_STEPS)

    preemptions = sum((counters.preemptions for counters in mix.counters), Counter())
    for reason in PreemptionReason:
        assert preemptions[reason, "swap"] > NUM_STEPS // 100
        assert preemptions[reason, "recompute"] > NUM_STEPS // 100
    for count in ("num_recomputed_tokens", "num_cached_tokens"):
        assert sum(getattr(counters, count) for counters in mix.counters) > NUM_STEPS // 10
    assert sum(counters.num_copied_in_blocks for counters in mix.counters) > NUM_STEPS // 20
    assert mix.num_mixed_steps > NUM_STEPS // 10 and engine.num_holes > NUM_STEPS
