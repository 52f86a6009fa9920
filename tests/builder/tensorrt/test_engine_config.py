"""A TensorRT engine's directory is read back, or refused by file, field, value and remedy before anything is loaded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jetway.builder import manifest
from jetway.builder.errors import ConversionError
from jetway.builder.fields import Fields
from jetway.builder.manifest import ManifestError, TensorRtBuild
from jetway.builder.tensorrt.engine_config import check_as_asked

Document = dict[str, Any]
REMEDY = "Build the engine with build-engine."


def make_document() -> Document:
    """As TensorRT-LLM writes it, which adds many fields that nobody here reads, and as the builder extends it."""
    return {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "Qwen2ForCausalLM",
            "dtype": "bfloat16",
            "logits_dtype": "float32",
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 5,
            "num_attention_heads": 8,
            "num_key_value_heads": 6,
            "head_size": 16,
            "max_position_embeddings": 4096,
            "mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2, "gpus_per_node": 8},
        },
        "build_config": {
            "max_batch_size": 16,
            "max_num_tokens": 1024,
            "max_seq_len": 2048,
            "max_beam_width": 1,
            "kv_cache_type": "PAGED",
            "weight_streaming": False,
            "plugin_config": {
                "gpt_attention_plugin": "auto",
                "gemm_plugin": "auto",
                "remove_input_padding": True,
                "tokens_per_block": 64,
                "use_paged_context_fmha": True,
                "manage_weights": False,
            },
        },
        "jetway": {
            "format": 1,
            "engine": "tensorrt",
            "engine_id": "ab" * 32,
            "model_name": "qwen",
            "quantization": None,
            "kv_cache_dtype": "fp8",
            "compute_capability": "9.0",
            "sliding_windows": [],
            "tokens": {"eos_ids": [2], "bos": None, "eos": "</s>", "unk": None, "pad": None},
            "files": {f"rank{rank}.engine": 4 for rank in range(4)},
            "built_with": {"jetway-llm": "0.1.0", "tensorrt": "10.14.1.48", "tensorrt_llm": "1.2.1"},
        },
    }


def write(document: Document, directory: Path) -> Path:
    for rank in range(4):
        (directory / f"rank{rank}.engine").write_bytes(b"rank")
    (directory / "config.json").write_text(json.dumps(document))
    return directory


def test_read(tmp_path: Path) -> None:
    engine = manifest.read(write(make_document(), tmp_path))
    assert engine.tensorrt == TensorRtBuild(
        tensorrt_llm_version="1.2.1",
        tensorrt_version="10.14.1.48",
        compute_capability="9.0",
        tp_size=2,
        pp_size=2,
        use_paged_context_fmha=True,
        logits_dtype="float32",
    )
    assert (engine.dtype, engine.kv_cache_dtype, engine.tokens_per_block) == ("bfloat16", "fp8", 64)
    assert engine.block_bytes == 3 * 3 * 2 * 64 * 16  # layers and heads of the fullest rank, keys and values, 1 byte


def test_write_keeps_what_tensorrt_llm_wrote(tmp_path: Path) -> None:
    document = make_document()
    document["pretrained_config"]["rotary_base"] = 5e5
    engine = manifest.read(write(document, tmp_path))
    del document["jetway"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    manifest.write(engine, tmp_path)
    assert manifest.read(tmp_path) == engine
    written = json.loads((tmp_path / "config.json").read_text())
    assert {name: written[name] for name in document} == document


def changed(name: str, value: object) -> Callable[[Document], None]:
    *sections, field = name.split(".")

    def change(document: Document) -> None:
        for section in sections:
            document = document[section]
        document[field] = value

    return change


PLUGINS = "build_config.plugin_config"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("build_config.kv_cache_type", "continuous", "is 'continuous'; steps need a paged cache"),
        (f"{PLUGINS}.remove_input_padding", False, "is False; steps are packed, so it must be true"),
        (f"{PLUGINS}.gpt_attention_plugin", None, "is None; steps need this plugin"),
        (f"{PLUGINS}.manage_weights", True, "is True; the weights must be inside the engine"),
        ("build_config.weight_streaming", True, "is True; the weights must be inside the engine"),
        (f"{PLUGINS}.tokens_per_block", 48, "is 48; it must be a power of two"),
        (
            "build_config.max_num_tokens",
            79,
            "is 79; max_batch_size decodes and one block of prefill need 80",
        ),
        ("build_config.max_seq_len", 4097, "is 4097; its RoPE table has 4096 rows"),
        (f"{PLUGINS}.use_paged_context_fmha", "enable", "is 'enable'; it must be true or false"),
        (
            "jetway.files",
            {"rank0.engine": 4, "rank1.engine": 4, "rank3.engine": 4},
            ("is ['rank0.engine', 'rank1.engine', 'rank3.engine']; tp_size 2 and pp_size 2 mean a rank2.engine"),
        ),
    ],
)
def test_refused(tmp_path: Path, name: str, value: object, problem: str) -> None:
    document = make_document()
    changed(name, value)(document)
    with pytest.raises(ManifestError) as refused:
        manifest.read(write(document, tmp_path))
    assert str(refused.value) == f"{tmp_path / 'config.json'}: {name} {problem}. {REMEDY}"


def test_a_ranks_file_that_is_not_there(tmp_path: Path) -> None:
    write(make_document(), tmp_path)
    (tmp_path / "rank2.engine").unlink()
    with pytest.raises(ManifestError) as refused:
        manifest.read(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / 'rank2.engine'}: does not exist, but config.json lists it. Copy the whole directory again."
    )


def test_an_engine_of_trtllm_build_alone(tmp_path: Path) -> None:
    document = make_document()
    del document["jetway"]
    with pytest.raises(ManifestError, match=r"has no jetway\.format\. Build the engine with build-engine"):
        manifest.read(write(document, tmp_path))


def test_what_was_built_is_what_was_asked(tmp_path: Path) -> None:
    document = make_document()
    fields = Fields(write(document, tmp_path) / "config.json")
    check_as_asked(fields, document["build_config"])
    asked = document["build_config"] | {"max_num_tokens": 2048}
    with pytest.raises(ConversionError) as failed:
        check_as_asked(fields, asked)
    assert str(failed.value) == (
        "TensorRT-LLM was asked for max_num_tokens 2048 and built 1024. The logs have its reason."
    )
