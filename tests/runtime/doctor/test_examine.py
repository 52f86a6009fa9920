"""Findings on a tiny engine; on engines that are wrong; on a machine that lacks things."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jetway.runtime.cli import main
from jetway.runtime.doctor import engine as on_engine
from jetway.runtime.doctor import environment
from jetway.runtime.doctor.examine import examine
from jetway.runtime.doctor.findings import NotHere, Outcome, as_report, attempt
from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.base import Int32Array, Sampled, StepBatch
from jetway.runtime.executor.simulated import SimulatedEngine
from tests.runtime.executor.driving import make_description
from tests.support.tokenizers import byte_level, write_engine
from tests.support.trt_manifest import make_document, write_document

DESCRIPTION = make_description(num_device_blocks=64, num_host_blocks=16)


class LosingEngine(SimulatedEngine):
    """What is copied in does not arrive."""

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        super().copy_in(np.zeros_like(host_blocks), device_blocks)


class LeakingEngine(SimulatedEngine):
    """In a batch of several rows every token is the first row's."""

    def execute(self, batch: StepBatch) -> Sampled:
        sampled = super().execute(batch)
        return replace(sampled, tokens=[sampled.tokens[0]] * len(sampled.tokens))


def test_an_engine_that_is_right_has_nothing_but_figures() -> None:
    engine = SimulatedEngine(DESCRIPTION)
    found = {
        check.__name__: list(check(engine))
        for check in (on_engine.describe, on_engine.tokens_alone_and_together, on_engine.swap_round_trip)
    }
    assert found == {
        "describe": [
            "simulated, at most 8 sequences, 64 tokens a step, 40 long",
            "64 blocks on the device and 16 on the host, each 32 bytes, 4 tokens",
        ],
        "tokens_alone_and_together": ["32 tokens are equal, their log-probabilities within 0.0e+00"],
        "swap_round_trip": ["8 tokens are equal, their log-probabilities within 0.0e+00"],
    }
    rates = list(on_engine.copy_rates(engine))
    assert [line.split(":")[0] for line in rates] == ["10 blocks to the host", "10 blocks from the host"]
    times = list(on_engine.step_times(engine))
    assert [line.split(":")[0] for line in times] == ["a prompt of 32 tokens", "1 decodes", "4 decodes"]


def test_a_wrong_copy_and_a_wrong_batch_are_found() -> None:
    with pytest.raises(EngineFailed, match="does not hold the KV of position 0"):
        list(on_engine.swap_round_trip(LosingEngine(DESCRIPTION)))
    with pytest.raises(AssertionError, match="token [0-9]+ instead of [0-9]+, which is clear"):
        list(on_engine.tokens_alone_and_together(LeakingEngine(DESCRIPTION)))


def test_pools_that_are_too_small_for_a_check_skip_it() -> None:
    engine = SimulatedEngine(replace(DESCRIPTION, num_host_blocks=0))
    with pytest.raises(NotHere, match="the pools hold 64 and 0 blocks, too few"):
        list(on_engine.swap_round_trip(engine))


def test_what_a_check_raises_is_a_finding_and_stands_in_the_report() -> None:
    def broken() -> list[str]:
        raise ValueError("no such thing")

    def skipped() -> list[str]:
        raise NotHere("there is no GPU")

    findings = [attempt("first", broken), attempt("second", skipped), attempt("third", lambda: ["one", "two"])]
    report = as_report(findings)
    assert report.startswith(
        "first                       FAILED   ValueError: no such thing\n"
        "second                      skipped  there is no GPU\n"
        "third                       ok       one\n"
        "                                     two\n"
        "\nfirst\nTraceback"
    )


def test_the_command_prints_and_writes_what_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory holds no model: that is a failure, and all before it is told."""
    monkeypatch.setattr(environment, "PACKAGES", ("numpy", "no-such-package"))
    report = tmp_path / "report.txt"
    assert main(["doctor", str(write_engine(tmp_path, byte_level())), "--report", str(report)]) == 1
    printed = capsys.readouterr().out
    assert report.read_text().startswith(printed)
    assert f"numpy {np.__version__}, no-such-package (none)" in printed
    lines = [line for line in printed.splitlines() if not line.startswith(" ")]
    assert [line.split("  ")[0] for line in lines] == [
        "versions",
        "machine",
        "GPU",
        "TensorRT-LLM",
        "MPI",
        "sampler",
        "engine",
    ]
    assert "FAILED   ConfigError: the engine in" in lines[-1] and "Traceback" in report.read_text()


def test_an_engine_of_several_ranks_is_not_run_but_what_it_needs_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    *_, gpus, engine = examine(write_document(make_document(), tmp_path))
    assert (gpus.what, gpus.outcome) == ("GPUs for all ranks", Outcome.SKIPPED)
    assert engine.outcome is Outcome.SKIPPED and engine.lines[0].startswith(
        "it has 2 ranks (tp_size 2, pp_size 1), and"
    )


def test_without_an_engine_the_machine_alone_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = examine(None)
    assert (last.what, last.outcome) == ("engine", Outcome.SKIPPED)


def test_a_report_that_cannot_be_written_is_a_wrong_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--report", str(tmp_path / "none/report.txt")]) == 2
    assert "the report cannot be written to" in capsys.readouterr().err
