"""scripts/gpu-check on a CPU: an engine is built, compared and examined; what needs a GPU is skipped by name."""

from pathlib import Path

import pytest

from jetway.runtime.doctor.findings import Outcome
from scripts.gpu_check import TARGETS, check


@pytest.mark.timeout(120)
def test_all_that_needs_no_gpu_is_checked(tmp_path: Path) -> None:
    findings = {finding.what: finding for finding in check(TARGETS["cpu"], tmp_path, num_steps=60)}
    outcomes = {what: finding.outcome for what, finding in findings.items() if what not in ("GPU", "TensorRT-LLM")}
    assert outcomes == dict.fromkeys(outcomes, Outcome.OK)
    assert findings["build"].lines == ("a Llama of two layers, float32, for openvino",)
    assert findings["random plans"].lines[0].startswith("60 plans, ")
    assert findings["tokens, alone and together"].lines[0].startswith("32 tokens are equal")
    assert {"engine", "swap, out and back", "copy rates", "step times", "sampler"} < outcomes.keys()


def test_a_build_that_fails_leaves_the_machine_to_be_looked_at(tmp_path: Path) -> None:
    """There is no TensorRT here, which is said by the build."""
    findings = {finding.what: finding for finding in check(TARGETS["cuda"], tmp_path, num_steps=1)}
    assert findings["build"].outcome is Outcome.FAILED and "random plans" not in findings
    assert findings["machine"].outcome is Outcome.OK and findings["engine"].outcome is Outcome.SKIPPED
