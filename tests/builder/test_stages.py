"""A build as a whole: what it shows, what it reuses, what it refuses, and what it leaves when it fails."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from jetway.builder import manifest, verify
from jetway.builder.errors import OutputError, VerifyError
from jetway.builder.manifest import Manifest
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_model import Resources
from tests.builder.references import engine_continuations

STAGES = ["inspect", "validate", "convert", "compile", "manifest", "verify"]


CONVERTED_BEFORE = "converted by an earlier build"
PT = {"format": "pt"}


@dataclass
class Screen:
    """What a build has shown; the user presses Ctrl-C as soon as it shows `interrupt_at`."""

    interrupt_at: str | None = None
    text: str = field(default="", init=False)

    def write(self, text: str) -> None:
        self.text += text
        if text.strip() == self.interrupt_at:
            raise KeyboardInterrupt

    def stages(self) -> list[str]:
        return [line.split()[0] for line in self.text.splitlines()]


def run(spec: BuildSpec, screen: Screen | None = None, *, force: bool = False) -> Manifest:
    return build(spec, Progress((screen or Screen()).write), force=force)


def test_build_writes_a_whole_engine(tiny_checkpoint: Path, tmp_path: Path) -> None:
    screen = Screen()
    built = run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "tiny", max_seq_len=128), screen)
    assert screen.stages() == STAGES
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    assert manifest.read(tmp_path / "tiny") == built
    assert {path.name for path in (tmp_path / "tiny").iterdir()} == {*built.files, "config.json"}
    assert set(built.files) == {"chat_template.jinja", "model.bin", "model.xml", "tokenizer.json"}
    assert (built.model_name, built.architecture, built.max_seq_len) == ("tiny", "LlamaForCausalLM", 128)
    assert (built.tokens.eos_ids, built.tokens.eos, built.tokens.bos) == ((2,), "<|im_end|>", "<|im_start|>")


def test_same_inputs_reuse_the_engine(tiny_checkpoint: Path, tiny_engine: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_engine.iterdir()}
    screen = Screen()
    found = run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tiny_engine), screen)
    assert found == manifest.read(tiny_engine)
    assert screen.stages() == ["inspect"]
    assert "up to date" in screen.text
    assert {path: path.stat().st_mtime_ns for path in tiny_engine.iterdir()} == before


def test_another_engine_is_replaced_only_by_force(tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path) -> None:
    output = shutil.copytree(tiny_engine, tmp_path / "tiny")
    spec = BuildSpec(model_dir=tiny_checkpoint, output_dir=output, max_batch_size=8)
    with pytest.raises(OutputError) as refused:
        run(spec)
    assert str(refused.value) == (
        f"{output}: holds another engine, or this one incomplete. Pass --force to replace it, or choose another "
        "--output-dir."
    )
    assert manifest.read(output) == manifest.read(tiny_engine)
    assert run(spec, force=True).max_batch_size == 8
    assert manifest.read(output).max_batch_size == 8
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_damaged_engine_is_not_reused(tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path) -> None:
    output = shutil.copytree(tiny_engine, tmp_path / "tiny")
    (output / "model.bin").write_bytes(b"half")
    with pytest.raises(OutputError, match="this one incomplete"):
        run(BuildSpec(model_dir=tiny_checkpoint, output_dir=output))


def test_force_never_replaces_what_is_not_an_engine(tiny_checkpoint: Path) -> None:
    """A checkpoint has a config.json, too."""
    with pytest.raises(OutputError) as refused:
        run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tiny_checkpoint), force=True)
    expected = f"{tiny_checkpoint}: exists and is not an engine directory. Choose another --output-dir."
    assert str(refused.value) == expected


def test_empty_output_directory_is_taken(tiny_checkpoint: Path, tmp_path: Path) -> None:
    run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path))
    assert manifest.read(tmp_path).model_name == tmp_path.name


@pytest.mark.parametrize("stage", ["inspect", "validate", "convert"])
def test_interrupt_in_an_early_stage_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path, stage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "engine"), Screen(interrupt_at=stage))
    assert list(tmp_path.iterdir()) == []


def resume(checkpoint: Path, output: Path, stage: str, **options: Any) -> Manifest:
    """Interrupt a build in `stage`; the next one, with `options`, takes its conversion. Returns what that builds."""
    with pytest.raises(KeyboardInterrupt):
        run(BuildSpec(model_dir=checkpoint, output_dir=output), Screen(interrupt_at=stage))
    staging = output.with_name(f".{output.name}.building")
    assert list(output.parent.iterdir()) == [staging]
    assert {path.name for path in staging.iterdir()} == {"model.bin", "model.xml", ".finished.json"}
    converted = (staging / "model.xml").read_bytes()  # no two are equal: it holds names that are counted up
    screen = Screen()
    built = run(BuildSpec(model_dir=checkpoint, output_dir=output, **options), screen)
    assert screen.stages() == STAGES
    assert CONVERTED_BEFORE in screen.text
    assert list(output.parent.iterdir()) == [output]
    assert (output / "model.xml").read_bytes() == converted
    assert set(built.files) | {"config.json"} == {path.name for path in output.iterdir()}
    return built


@pytest.mark.parametrize("stage", ["compile", "manifest", "verify"])
def test_a_finished_conversion_is_used(tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path, stage: str) -> None:
    built = resume(tiny_checkpoint, tmp_path / "tiny", stage)
    assert built.engine_id == manifest.read(tiny_engine).engine_id
    assert (tmp_path / "tiny" / "model.bin").read_bytes() == (tiny_engine / "model.bin").read_bytes()


def test_a_finished_conversion_is_used_with_other_limits(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Which do not change it."""
    options = {"max_seq_len": 64, "max_batch_size": 8, "kv_cache_dtype": "u8"}
    built = resume(tiny_checkpoint, tmp_path / "tiny", "verify", **options)
    assert (built.max_seq_len, built.max_batch_size, built.kv_cache_dtype) == (64, 8, "u8")


def test_another_checkpoint_is_converted_anew(tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    weights = load_file(changed / "model.safetensors")
    save_file(weights | {"model.norm.weight": 2 * weights["model.norm.weight"]}, changed / "model.safetensors", PT)
    output = tmp_path / "engines" / "tiny"
    output.parent.mkdir()
    with pytest.raises(KeyboardInterrupt):
        run(BuildSpec(model_dir=changed, output_dir=output), Screen(interrupt_at="verify"))
    screen = Screen()
    run(BuildSpec(model_dir=tiny_checkpoint, output_dir=output), screen)
    assert CONVERTED_BEFORE not in screen.text
    assert (output / "model.bin").read_bytes() == (tiny_engine / "model.bin").read_bytes()


def test_force_converts_anew(tiny_checkpoint: Path, tmp_path: Path) -> None:
    spec = BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "tiny")
    with pytest.raises(KeyboardInterrupt):
        run(spec, Screen(interrupt_at="verify"))
    screen = Screen()
    run(spec, screen, force=True)
    assert CONVERTED_BEFORE not in screen.text


def test_a_conversion_that_fails_verification_is_not_kept(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "TOLERANCE", 0.0)
    with pytest.raises(VerifyError, match=r"allowed are 0\. These versions of torch"):
        run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "tiny"))
    assert list(tmp_path.iterdir()) == []


def test_interrupted_replacement_keeps_the_old_engine(tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path) -> None:
    output = shutil.copytree(tiny_engine, tmp_path / "tiny")
    with pytest.raises(KeyboardInterrupt):
        run(
            BuildSpec(model_dir=tiny_checkpoint, output_dir=output, max_batch_size=8),
            Screen(interrupt_at="verify"),
            force=True,
        )
    assert manifest.read(output) == manifest.read(tiny_engine)
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", ".tiny.building"}


def test_int8_engine(nncf: None, tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path) -> None:
    """Smaller, and near the model; its cache may be lossy, too."""
    spec = BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "int8", quantization="int8", kv_cache_dtype="u8")
    built = run(spec)
    assert (built.quantization, built.kv_cache_dtype) == ("int8", "u8")
    assert built.files["model.bin"] < 0.4 * manifest.read(tiny_engine).files["model.bin"]
    assert "nncf" in built.built_with
    assert built.engine_id != manifest.read(tiny_engine).engine_id
    assert [len(tokens) for tokens in engine_continuations(tmp_path / "int8", 8)] == [8, 8, 8, 8]


def test_u8_cache_takes_less(tiny_checkpoint: Path, tiny_engine: Path, tmp_path: Path) -> None:
    """The executor's pools have the manifest's blocks, and the weights stay as they are."""
    spec = BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "u8", kv_cache_dtype="u8")
    built = run(spec)
    loaded = OpenVinoEngine.load(tmp_path / "u8", Resources(kv_cache_memory=1 << 20))
    assert loaded.describe().num_device_blocks == (1 << 20) // built.block_bytes
    assert (tmp_path / "u8" / "model.bin").read_bytes() == (tiny_engine / "model.bin").read_bytes()
    first, second = engine_continuations(tmp_path / "u8", 8), engine_continuations(tmp_path / "u8", 8)
    assert first == second  # equal plans, equal bits
    assert [len(tokens) for tokens in first] == [8, 8, 8, 8]
