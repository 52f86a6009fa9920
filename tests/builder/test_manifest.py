"""The engine directory's config.json."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetway.builder import manifest
from jetway.builder.manifest import Manifest, ManifestError, Tokens

Document = dict[str, Any]


def make_manifest() -> Manifest:
    return Manifest(
        engine="openvino",
        engine_id="ab" * 32,
        model_name="tiny",
        architecture="LlamaForCausalLM",
        dtype="float32",
        quantization="int8",
        kv_cache_dtype="f32",
        vocab_size=300,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_size=16,
        max_position_embeddings=256,
        tokens_per_block=32,
        max_batch_size=64,
        max_num_tokens=512,
        max_seq_len=128,
        sliding_windows=(None, 64),
        tokens=Tokens(eos_ids=(2, 7), bos="<s>", eos="</s>", unk=None, pad=None),
        files={"model.bin": 3, "model.xml": 5},
        built_with={"jetway-llm": "0.1.0", "openvino": "2026.4.1"},
    )


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A directory that `read` accepts."""
    (tmp_path / "model.bin").write_text("bin")
    (tmp_path / "model.xml").write_text("<xml>")
    manifest.write(make_manifest(), tmp_path)
    return tmp_path


def test_read_returns_what_was_written(engine: Path) -> None:
    assert manifest.read(engine) == make_manifest()


def test_file_has_the_shape_of_tensorrt_llm(engine: Path) -> None:
    document = json.loads((engine / "config.json").read_text())
    assert document["version"] == "0.1.0"
    assert document["pretrained_config"] == {
        "architecture": "LlamaForCausalLM",
        "dtype": "float32",
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_size": 16,
        "max_position_embeddings": 256,
    }
    assert document["build_config"] == {
        "max_batch_size": 64,
        "max_num_tokens": 512,
        "max_seq_len": 128,
        "kv_cache_type": "PAGED",
        "plugin_config": {"tokens_per_block": 32},
    }


def test_fields_that_older_engines_lack(engine: Path) -> None:
    path = engine / "config.json"
    document = json.loads(path.read_text())
    del document["jetway"]["quantization"], document["jetway"]["sliding_windows"]
    path.write_text(json.dumps(document))
    assert manifest.read(engine) == replace(make_manifest(), quantization=None, sliding_windows=())


@pytest.mark.parametrize(
    ("kv_cache_dtype", "block_bytes"),
    [
        ("f32", 2 * 2 * (32 * 16 * 4 + 32 * 16 * 4)),  # layers, heads, keys and values of 32 tokens and 16 numbers
        ("u8", 2 * 2 * (40 * 16 + 32 * 24)),  # key_cache [.., 40, 16] and value_cache [.., 32, 24]
    ],
)
def test_block_bytes(kv_cache_dtype: str, block_bytes: int) -> None:
    engine = replace(make_manifest(), kv_cache_dtype=kv_cache_dtype)
    assert (engine.block_bytes, engine.kv_bytes_per_token * 32) == (block_bytes, block_bytes)


def changed(section: str, field: str, value: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        document[section][field] = value

    return change


def without(section: str, field: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        del document[section][field]

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda document: document.clear(), "has no jetway.format"),
        (without("pretrained_config", "head_size"), "has no pretrained_config.head_size"),
        (without("build_config", "plugin_config"), "has no build_config.plugin_config.tokens_per_block"),
        (changed("jetway", "format", 2), "jetway.format is 2; this version reads 1"),
        (changed("jetway", "engine", "onnx"), "jetway.engine is 'onnx'; this version knows openvino, tensorrt"),
        (changed("jetway", "engine_id", ""), "jetway.engine_id is ''; it must be a text"),
        (
            changed("jetway", "kv_cache_dtype", "u4"),
            "jetway.kv_cache_dtype is 'u4'; this version knows f32, u8, float32, float16, bfloat16, fp8, int8",
        ),
        (changed("jetway", "tokens", {"eos_ids": 2}), "jetway.tokens.eos_ids is 2; it must be a list of token ids"),
        (
            changed("jetway", "quantization", "int2"),
            "jetway.quantization is 'int2'; this version knows int8, int4, fp8",
        ),
        (
            changed("jetway", "sliding_windows", [0, 64]),
            "jetway.sliding_windows is [0, 64]; it must be a list of positive integers and null",
        ),
        (
            changed("jetway", "sliding_windows", [64]),
            "jetway.sliding_windows is [64]; it must be empty or have 2 entries",
        ),
        (
            changed("jetway", "files", {"model.bin": "3"}),
            "jetway.files is {'model.bin': '3'}; it must map names to int",
        ),
        (
            changed("build_config", "max_batch_size", 0),
            "build_config.max_batch_size is 0; it must be a positive integer",
        ),
        (
            changed("pretrained_config", "vocab_size", True),
            "pretrained_config.vocab_size is True; it must be a positive integer",
        ),
    ],
)
def test_read_names_file_field_value_and_remedy(engine: Path, change: Callable[[Document], None], problem: str) -> None:
    path = engine / "config.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ManifestError) as refused:
        manifest.read(engine)
    assert str(refused.value) == f"{path}: {problem}. Build the engine with build-engine."


def test_read_refuses_a_directory_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as refused:
        manifest.read(tmp_path)
    expected = f"{tmp_path / 'config.json'}: does not exist. Pass a directory that build-engine wrote."
    assert str(refused.value) == expected


def test_read_refuses_broken_json(engine: Path) -> None:
    (engine / "config.json").write_text("{")
    with pytest.raises(ManifestError, match="config.json: is not readable JSON"):
        manifest.read(engine)


def test_read_refuses_an_absent_file(engine: Path) -> None:
    (engine / "model.xml").unlink()
    with pytest.raises(ManifestError) as refused:
        manifest.read(engine)
    expected = f"{engine / 'model.xml'}: does not exist, but config.json lists it. Copy the whole directory again."
    assert str(refused.value) == expected


def test_read_refuses_a_file_of_another_size(engine: Path) -> None:
    (engine / "model.bin").write_text("bi")
    with pytest.raises(ManifestError) as refused:
        manifest.read(engine)
    expected = f"{engine / 'model.bin'}: has 2 bytes, but config.json says 3. Copy the whole directory again."
    assert str(refused.value) == expected


def test_module_needs_the_standard_library_only() -> None:
    """The runtime imports it, and its environment may lack all that a build needs."""
    code = "import sys; before = set(sys.modules); import jetway.builder.manifest; print(*set(sys.modules) - before)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.partition(".")[0] for name in output.split()} <= sys.stdlib_module_names | {"jetway"}
