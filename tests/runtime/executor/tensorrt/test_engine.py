"""Thousands of random plans on the stand-ins give the tokens of Hugging Face, and no piece of work races another.

JETWAY_TRT_STEPS=20000 runs longer.
"""

import os
from collections import Counter

import pytest

from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from jetway.scheduler.stats import PreemptionReason
from tests.runtime.executor.random_mix import RandomMix
from tests.support.trt_references import Reference

NUM_STEPS = int(os.environ.get("JETWAY_TRT_STEPS", "2000"))


@pytest.mark.timeout(60 + NUM_STEPS // 20)
def test_random_mixes_give_the_tokens_of_hugging_face(engine: TensorRtEngine, tiny_references: list[Reference]) -> None:
    mix = RandomMix(engine, tiny_references, seed=3)
    mix.run(NUM_STEPS)

    preemptions = sum((counters.preemptions for counters in mix.counters), Counter())
    for reason in PreemptionReason:
        assert preemptions[reason, "swap"] > NUM_STEPS // 100
    assert sum(counters.num_copied_in_blocks for counters in mix.counters) > NUM_STEPS // 10
    assert mix.num_mixed_steps > NUM_STEPS // 10
