"""Nothing that a checkpoint brings is executed."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from tests.builder.damage import refusal, with_config
from tests.builder.references import assert_continues, huggingface_continuations


class Exploit:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self._path, "executed")


HOSTILE_CODE = """
from pathlib import Path
Path({path!r}).write_text("executed")
from transformers import LlamaConfig as HostileConfig, LlamaForCausalLM as HostileModel
from transformers import PreTrainedTokenizerFast as HostileTokenizer
"""
AUTO_MAP = {
    "AutoConfig": "hostile.HostileConfig",
    "AutoModelForCausalLM": "hostile.HostileModel",
    "AutoTokenizer": ["hostile.HostileTokenizer", "hostile.HostileTokenizer"],
}


def test_nothing_is_executed(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the code that a checkpoint brings, not its pickles, not a module named like one that the build imports."""
    trace = tmp_path / "trace"
    code = HOSTILE_CODE.format(path=str(trace))
    for name in (
        "hostile.py",
        "modeling_llama.py",
        "tokenization_hostile.py",
        "jinja2.py",
        "custom_generate/generate.py",
    ):
        path = checkpoint / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (checkpoint / name).write_bytes(pickle.dumps(Exploit(trace)))
    with_config(auto_map=AUTO_MAP)(checkpoint)
    path = checkpoint / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": AUTO_MAP}))
    expected = huggingface_continuations(checkpoint, 4)
    monkeypatch.chdir(checkpoint)  # where Python would look for modules first
    build(BuildSpec(model_dir=checkpoint, output_dir=tmp_path / "engine"), Progress(lambda text: None), force=False)
    assert_continues(tmp_path / "engine", expected, 4)
    assert not trace.exists()


def test_a_pickle_alone_is_refused_unread(checkpoint: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit(trace)))
    stage, found = refusal(checkpoint)
    assert found.startswith(f"{checkpoint / 'pytorch_model.bin'}: is a pickle, which could run code when read")
    assert stage == "inspect"
    assert not trace.exists()
    pickle.loads((checkpoint / "pytorch_model.bin").read_bytes())
    assert trace.read_text() == "executed"  # so the pickle is one that would have been noticed
