"""A build as a whole: what it shows, what it reuses, what it refuses, and what it leaves when it fails."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jetway.builder import manifest
from jetway.builder.errors import CheckpointError, OutputError
from jetway.builder.manifest import Manifest
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build

STAGES = ["inspect", "validate", "convert", "compile", "manifest", "verify"]


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


@pytest.mark.parametrize("stage", STAGES)
def test_interrupt_in_any_stage_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path, stage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(BuildSpec(model_dir=tiny_checkpoint, output_dir=tmp_path / "engine"), Screen(interrupt_at=stage))
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
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def enlarge_tokenizer(checkpoint: Path) -> None:
    path = checkpoint / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 300, "content": "<extra>"})
    path.write_text(json.dumps(tokenizer), encoding="utf-8")


def drop_layer(checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 3}))


def break_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a safetensors header")


def break_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "failed_stage", "message"),
    [
        (
            break_weights,
            "convert",
            "model.safetensors: transformers cannot load the model",
        ),
        (
            drop_layer,
            "convert",
            "has no tensor model.layers.2.input_layernorm.weight (of 9 that are missing). Download the checkpoint again.",
        ),
        (
            break_tokenizer,
            "manifest",
            "checkpoint: transformers cannot load the tokenizer",
        ),
        (
            enlarge_tokenizer,
            "manifest",
            "config.json: vocab_size is 300, but the tokenizer gives '<extra>' the id 300. Take that token out of the",
        ),
    ],
)
def test_damaged_checkpoint_is_refused(
    tiny_checkpoint: Path, tmp_path: Path, damage: Callable[[Path], None], failed_stage: str, message: str
) -> None:
    checkpoint = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    damage(checkpoint)
    screen = Screen()
    with pytest.raises(CheckpointError) as refused:
        run(BuildSpec(model_dir=checkpoint, output_dir=tmp_path / "engine"), screen)
    assert message in str(refused.value)
    assert screen.stages()[-1] == failed_stage
    assert screen.text.endswith("failed\n")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
