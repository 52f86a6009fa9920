"""A build as a whole, against a stand-in for TensorRT-LLM that knows the contract's arguments and no others."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from jetway.builder import disk, manifest
from jetway.builder.cli import main
from jetway.builder.errors import BuildError, CheckpointError, ConversionError, OptionError, OutputError
from jetway.builder.manifest import Manifest, TensorRtBuild
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.tensorrt import machine, stages, workers
from jetway.builder.tensorrt.machine import Machine
from tests.builder.tensorrt.conversions import make_spec
from tests.builder.tensorrt.machines import make_machine
from tests.support.checkpoints import make_checkpoint

STAGES = ["inspect", "preflight", "validate", "convert", "build", "manifest"]
MACHINE = make_machine()

pytestmark = pytest.mark.usefixtures("fake_tensorrt_llm")


class Screen:
    """What a build has shown."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def stages(self) -> list[str]:
        return [line.split()[0] for line in self.text.splitlines()]


def spec_of(checkpoint: Path, output: Path, **options: Any) -> BuildSpec:
    small = {"max_batch_size": 8, "max_num_tokens": 512}
    return replace(make_spec(checkpoint, **small | options), output_dir=output)


def build(spec: BuildSpec, screen: Screen | None = None, *, force: bool = False) -> Manifest:
    return stages.build(spec, Progress((screen or Screen()).write), lambda: MACHINE, force=force)


def test_build_writes_a_whole_engine(plain_checkpoint: Path, tmp_path: Path) -> None:
    screen = Screen()
    built = build(spec_of(plain_checkpoint, tmp_path / "tiny", tp_size=2, pp_size=2), screen)
    assert screen.stages() == STAGES
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "tiny.logs"}
    assert manifest.read(tmp_path / "tiny") == built
    assert {path.name for path in (tmp_path / "tiny").iterdir()} == {*built.files, "config.json"}
    engines = {f"rank{rank}.engine" for rank in range(4)}
    assert set(built.files) == {*engines, "tokenizer.json"}
    assert (built.engine, built.dtype, built.kv_cache_dtype) == ("tensorrt", "float16", "float16")
    assert (built.max_batch_size, built.max_num_tokens, built.max_seq_len) == (8, 512, 256)
    assert (built.tokens.eos_ids, built.tokens.eos) == ((2,), "<|im_end|>")
    assert built.tensorrt == TensorRtBuild(
        tensorrt_llm_version="1.2.1",
        tensorrt_version="10.14.1.48",
        compute_capability="9.0",
        tp_size=2,
        pp_size=2,
        logits_dtype="float32",
    )
    assert built.block_bytes == 2 * 32 * 16 * 2  # keys and values, tokens, head size, bytes: one layer, one head a rank


def test_the_command_says_how_to_serve_what_it_built(
    plain_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "inspect", lambda: MACHINE)
    paths = ["--model-dir", str(plain_checkpoint), "--output-dir", str(tmp_path / "tiny")]
    assert main([*paths, "--engine", "tensorrt", "--max-batch-size", "8", "--max-num-tokens", "512"]) == 0
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line == f"Serve it: jetway serve {tmp_path / 'tiny'} --python {sys.executable}"


def test_ranks_take_the_gpu_that_is_free_and_keep_logs(
    plain_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 outlasts rank 2, which so gets the GPU that rank 1 has left."""
    monkeypatch.setenv("FAKE_TENSORRT_LLM", "slow")
    screen = Screen()
    build(spec_of(plain_checkpoint, tmp_path / "tiny", tp_size=2, pp_size=2), screen)
    logs = tmp_path / "tiny.logs"
    assert sorted(path.name for path in logs.iterdir()) == [*(f"rank{rank}.log" for rank in range(4)), "timing.cache"]
    for rank, gpu in enumerate(["GPU-a", "GPU-b", "GPU-b", "GPU-"]):
        log = (logs / f"rank{rank}.log").read_text()
        assert "[TensorRT-LLM] TensorRT LLM version: 1.2.1" in log
        assert f"loads rank {rank} on {gpu}" in log
        for words in ("tensorrt_llm imported", "weights loaded", "built"):
            assert f"rank {rank} {words}, " in screen.text
    assert "2 of 4 ranks at a time" in screen.text


def test_the_engines_configuration_is_tensorrt_llms_own(plain_checkpoint: Path, tmp_path: Path) -> None:
    build(spec_of(plain_checkpoint, tmp_path / "tiny"))
    document = json.loads((tmp_path / "tiny" / "config.json").read_text())
    assert list(document) == ["version", "pretrained_config", "build_config", "jetway"]
    assert document["version"] == "1.2.1"
    assert document["pretrained_config"]["rotary_base"] == 10000.0
    assert document["build_config"]["plugin_config"]["gpt_attention_plugin"] == "auto"
    assert document["jetway"]["built_with"].keys() == {
        "jetway-llm",
        "tensorrt",
        "tensorrt_llm",
        "torch",
        "transformers",
    }


def test_same_inputs_reuse_the_engine(plain_checkpoint: Path, tmp_path: Path) -> None:
    spec = spec_of(plain_checkpoint, tmp_path / "tiny")
    built, screen = build(spec), Screen()
    assert build(spec, screen) == built
    assert screen.stages() == ["inspect", "preflight"]
    elsewhere = make_machine(versions=MACHINE.versions | {"tensorrt": "10.14.2"})
    with pytest.raises(OutputError, match="holds another engine"):
        stages.build(spec, Progress(Screen().write), lambda: elsewhere, force=False)
    with pytest.raises(OutputError, match="holds another engine"):
        build(spec_of(plain_checkpoint, tmp_path / "tiny", multiple_profiles=True))


def failed_build(spec: BuildSpec) -> str:
    screen = Screen()
    with pytest.raises(ConversionError) as failed:
        build(spec, screen)
    assert screen.stages() == STAGES[:5]
    return str(failed.value)


def test_a_failed_build_keeps_conversion_and_logs(
    plain_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one goes on from the conversion."""
    spec, log = spec_of(plain_checkpoint, tmp_path / "tiny"), tmp_path / "tiny.logs" / "rank0.log"
    monkeypatch.setenv("FAKE_TENSORRT_LLM", "crash")
    message = failed_build(spec)
    assert message.startswith(f"rank 0: TensorRT-LLM ended with status 1. {log} ends:\n")
    assert message.endswith("RuntimeError: no tactic for this layer")
    assert {path.name for path in tmp_path.iterdir()} == {".tiny.building", "tiny.logs"}
    kept = tmp_path / ".tiny.building"
    assert sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()) == [
        ".finished.json",
        "checkpoint/config.json",
        "checkpoint/rank0.safetensors",
    ]
    monkeypatch.delenv("FAKE_TENSORRT_LLM")
    screen = Screen()
    build(spec, screen)
    assert "converted by an earlier build" in screen.text
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "tiny.logs"}


def test_what_tensorrt_llm_turns_off_with_a_warning_is_an_error(
    plain_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TENSORRT_LLM", "warn")
    assert failed_build(spec_of(plain_checkpoint, tmp_path / "tiny")) == (
        "TensorRT-LLM was asked for plugin_config.use_paged_context_fmha True and built False. The logs have its reason."
    )


def test_an_import_that_hangs_is_ended(plain_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TENSORRT_LLM", "hang")
    monkeypatch.setattr(workers, "IMPORT_TIMEOUT_S", 0.0)
    assert "as happens where MPI cannot start. Try: " in failed_build(spec_of(plain_checkpoint, tmp_path / "tiny"))


def unasked() -> Machine:
    raise AssertionError("a conversion of Jetway's own needs no GPU")


def test_conversion_alone(plain_checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "ranks"
    spec, screen = spec_of(plain_checkpoint, output, tp_size=2), Screen()
    stages.convert(spec, Progress(screen.write), unasked, force=False)
    assert screen.stages() == ["inspect", "validate", "convert"]
    assert sorted(path.name for path in output.iterdir()) == ["config.json", "rank0.safetensors", "rank1.safetensors"]
    assert list(tmp_path.iterdir()) == [output]
    with pytest.raises(OutputError, match="Pass --force"):
        stages.convert(spec, Progress(screen.write), lambda: MACHINE, force=False)
    stages.convert(spec, Progress(screen.write), lambda: MACHINE, force=True)
    assert load_file(output / "rank1.safetensors")["lm_head.weight"].shape == (150, 64)


def test_other_architectures_are_converted_by_tensorrt_llm(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "GPT2LMHeadModel", {}, chat_template=None)
    output = tmp_path / "ranks"
    spec = spec_of(source, output, tp_size=2, dtype="float16", quantization="int8")
    stages.convert(spec, Progress(Screen().write), lambda: MACHINE, force=False)
    assert sorted(path.name for path in output.iterdir()) == ["config.json", "rank0.safetensors", "rank1.safetensors"]
    config = json.loads((output / "config.json").read_text())
    assert config["mapping"] == {"world_size": 2, "tp_size": 2, "pp_size": 1}
    assert config["quantization"] == {"quant_algo": "W8A16", "kv_cache_quant_algo": None}


def test_scales_are_measured_by_tensorrt_llm(plain_checkpoint: Path, tmp_path: Path) -> None:
    output, texts = tmp_path / "ranks", tmp_path / "texts"
    texts.mkdir()
    spec = spec_of(plain_checkpoint, output, quantization="fp8", kv_cache_dtype="fp8", calib_dataset=texts)
    stages.convert(spec, Progress(Screen().write), lambda: MACHINE, force=False)
    config = json.loads((output / "config.json").read_text())
    assert config["quantization"] == {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert f"measures on {texts} with GPU-a" in (tmp_path / "ranks.logs" / "convert.log").read_text()


def test_scales_are_measured_on_something(plain_checkpoint: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    spec = spec_of(plain_checkpoint, tmp_path / "ranks", quantization="fp8", calib_dataset=texts)
    with pytest.raises(OptionError) as refused:
        stages.convert(spec, Progress(Screen().write), lambda: MACHINE, force=False)
    assert str(refused.value) == f"--calib-dataset {texts}: does not exist. Name a data set on disk."


def test_a_converted_checkpoint_is_no_engine(plain_checkpoint: Path, tmp_path: Path) -> None:
    stages.convert(spec_of(plain_checkpoint, tmp_path / "ranks"), Progress(Screen().write), unasked, force=False)
    with pytest.raises(manifest.ManifestError) as refused:
        manifest.read(tmp_path / "ranks")
    assert str(refused.value) == (
        f"{tmp_path / 'ranks' / 'config.json'}: is of a converted checkpoint, of which no engine is built yet. "
        "Leave --convert-only out of build-engine."
    )


def test_a_converted_checkpoint_needs_room(
    plain_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda directory: 1000)
    with pytest.raises(OutputError, match=r"the converted checkpoint takes about 0\.2 MB, and 0\.0 MB are free there"):
        stages.convert(spec_of(plain_checkpoint, tmp_path / "ranks"), Progress(Screen().write), unasked, force=False)


def test_a_conversion_says_what_its_layers_see(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "MistralForCausalLM", {"sliding_window": 100}, chat_template=None)
    screen = Screen()
    stages.convert(spec_of(source, tmp_path / "ranks"), Progress(screen.write), unasked, force=False)
    assert "layers see 100 tokens, so trtllm-build may have no more as --max_seq_len" in screen.text


def test_a_checkpoints_code_is_not_handed_on(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "GPT2LMHeadModel", {}, chat_template=None)
    (source / "modeling.py").write_text("raise SystemExit")
    with pytest.raises(CheckpointError, match=r"modeling\.py: is code, which TensorRT-LLM's conversion may run"):
        stages.convert(spec_of(source, tmp_path / "ranks"), Progress(Screen().write), lambda: MACHINE, force=False)


def test_an_architecture_that_tensorrt_llm_does_not_know(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "PhiForCausalLM", {}, chat_template=None)
    with pytest.raises(ConversionError, match=r"TensorRT-LLM has no PhiForCausalLM\. Build this model with"):
        stages.convert(spec_of(source, tmp_path / "ranks"), Progress(Screen().write), lambda: MACHINE, force=False)


def test_windows_that_act_are_refused(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "MistralForCausalLM", {"sliding_window": 100}, chat_template=None)
    with pytest.raises(OptionError) as refused:
        build(spec_of(source, tmp_path / "engine"))
    assert str(refused.value) == (
        f"--max-seq-len 256: {source / 'config.json'} has layers that see 100 tokens, and a TensorRT engine's layers see "
        "all. Pass no more than that, or --engine openvino."
    )
    assert build(spec_of(source, tmp_path / "engine", max_seq_len=100)).sliding_windows == ()


def test_nothing_is_left_of_a_bad_checkpoint(plain_checkpoint: Path, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(plain_checkpoint, tmp_path / "checkpoint")
    (checkpoint / "generation_config.json").write_text('{"eos_token_id": 5000}')
    with pytest.raises(BuildError, match="eos_token_id is 5000"):
        build(spec_of(checkpoint, tmp_path / "engine"))
    assert list(tmp_path.iterdir()) == [checkpoint]
