"""The doctor's checks of an engine, on the stand-ins: what scripts/gpu-check will do on a GPU."""

from functools import partial

import pytest

from jetway.runtime.doctor.examine import ENGINE_CHECKS
from jetway.runtime.doctor.findings import Outcome, attempt
from jetway.runtime.executor.tensorrt.engine import TensorRtEngine
from tests.support.cuda_stand_in import StandInStream


def test_an_engine_on_a_gpu_passes_every_check(engine: TensorRtEngine) -> None:
    findings = [attempt(what, partial(check, engine)) for what, check in ENGINE_CHECKS.items()]
    assert [finding.outcome for finding in findings] == [Outcome.OK] * len(ENGINE_CHECKS), "\n".join(map(str, findings))
    assert findings[0].lines[0] == "tensorrt, at most 8 sequences, 64 tokens a step, 64 long"
    assert findings[1].lines[0].startswith("32 tokens are equal") and findings[2].lines[0].startswith("8 tokens are")


def test_a_step_that_does_not_wait_for_copies_is_found(engine: TensorRtEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInStream, "wait", lambda self, event: None)
    assert attempt("swap", partial(ENGINE_CHECKS["swap, out and back"], engine)).outcome is Outcome.FAILED
