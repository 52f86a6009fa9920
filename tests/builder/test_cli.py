"""`build-engine` as a command: exit status, and what goes to which stream."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jetway.builder.cli import main

COMMAND = Path(sys.executable).with_name("build-engine")


def test_builds(tiny_checkpoint: Path, tiny_engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model-dir", str(tiny_checkpoint), "--output-dir", str(tiny_engine)]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[0].startswith(
        "inspect   LlamaForCausalLM, 0.1 M parameters, the engine is up to date, "
    )
    assert output.out.splitlines()[-1] == f"Serve it: jetway serve {tiny_engine}"
    assert output.err == ""


def test_wrong_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model-dir", str(tmp_path), "--output-dir", str(tmp_path / "engine"), "--engine", "onnx"]
    assert main(arguments) == 2
    assert capsys.readouterr().err == (
        "build-engine: error: --engine onnx: not supported by this version. Use openvino or tensorrt.\n"
    )


def test_conversions_are_tensorrts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model-dir", str(tmp_path), "--output-dir", str(tmp_path / "engine"), "--convert-only"]) == 2
    assert capsys.readouterr().err == (
        "build-engine: error: --convert-only: writes TensorRT-LLM's checkpoints. Pass --engine tensorrt with it.\n"
    )


def test_wrong_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model-dir", str(tmp_path), "--output-dir", str(tmp_path / "engine")]) == 1
    output = capsys.readouterr()
    assert output.out == "inspect   failed\n"
    assert output.err == (
        f"build-engine: error: {tmp_path}: holds neither config.json nor a .gguf file. Pass a checkpoint's directory.\n"
    )


def test_auto_engine_says_which_it_is(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ["--model-dir", str(tiny_checkpoint), "--output-dir", str(tmp_path / "engine")]
    assert main([*paths, "--engine", "auto"]) == 0
    assert "validate  openvino engine, up to 256 tokens, " in capsys.readouterr().out


def test_dry_run(tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["--model-dir", str(tiny_checkpoint), "--output-dir", str(tmp_path / "engine")]
    assert main([*paths, "--dry-run", "--kv-cache-memory", "1MiB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "pool      1,048,576 bytes hold 64 blocks, 2,048 tokens:",
        "               8 sequences of 256 tokens",
    ]
    assert list(tmp_path.iterdir()) == []


def test_pool_is_no_part_of_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["--model-dir", str(tmp_path), "--output-dir", str(tmp_path / "engine")]
    assert main([*paths, "--kv-cache-memory", "1MiB"]) == 2
    assert capsys.readouterr().err == (
        "build-engine: error: --kv-cache-memory: no part of an engine. Use it with --dry-run, or with jetway serve.\n"
    )


def test_help_loads_no_torch() -> None:
    code = "import sys, jetway.builder.cli; print({'torch', 'transformers', 'openvino'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "set()\n"


@pytest.mark.timeout(60)
def test_interrupt(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Ctrl-C while OpenVINO compiles."""
    command = [str(COMMAND), "--model-dir", str(tiny_checkpoint), "--output-dir", str(tmp_path / "engine")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown = ""
        while not shown.endswith("compile"):
            shown += process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    kept = tmp_path / ".engine.building"
    assert process.returncode == 130
    assert errors.splitlines() == [
        "build-engine: interrupted; nothing has changed",
        f"The converted model is kept in {kept}; the same command goes on from it.",
    ]
    assert list(tmp_path.iterdir()) == [kept]
