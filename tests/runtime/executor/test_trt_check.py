"""TensorRT engines that cannot be served here are refused by file, field, value and remedy, before they are loaded."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.trt_check import Surroundings, read_engine
from jetway.runtime.executor.trt_kv import KvLayout
from tests.support.tokenizers import byte_level, write_engine

Document = dict[str, Any]
HERE = Surroundings(tensorrt_llm_version="1.2.1", tensorrt_version="10.14.1.48", compute_capability="9.0", tp_size=2)


def make_document() -> Document:
    """A Llama 3 8B on two GPUs, as TensorRT-LLM and the builder leave it; what is not read is left out."""
    return {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "LlamaForCausalLM",
            "dtype": "bfloat16",
            "logits_dtype": "float32",
            "vocab_size": 128256,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_size": 128,
            "max_position_embeddings": 8192,
            "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1},
        },
        "build_config": {
            "max_batch_size": 64,
            "max_num_tokens": 512,
            "max_seq_len": 8192,
            "max_beam_width": 1,
            "kv_cache_type": "PAGED",
            "weight_streaming": False,
            "plugin_config": {
                "gpt_attention_plugin": "auto",
                "remove_input_padding": True,
                "use_paged_context_fmha": True,
                "tokens_per_block": 32,
                "manage_weights": False,
            },
        },
        "jetway": {
            "format": 1,
            "engine": "tensorrt",
            "engine_id": "ab" * 32,
            "model_name": "llama",
            "kv_cache_dtype": "bfloat16",
            "tokens": {"eos_ids": [128001], "bos": None, "eos": None, "unk": None, "pad": None},
            "files": {"rank0.engine": 4, "rank1.engine": 4},
            "built_with": {"tensorrt": "10.14.1.48", "tensorrt_llm": "1.2.1"},
            "compute_capability": "9.0",
        },
    }


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    write(tmp_path, lambda document: None)
    for rank in range(2):
        (tmp_path / f"rank{rank}.engine").write_bytes(b"plan")
    return tmp_path


def write(engine: Path, change: Callable[[Document], None]) -> None:
    document = make_document()
    change(document)
    (engine / "config.json").write_text(json.dumps(document))


def changed(path: str, value: object) -> Callable[[Document], None]:
    *parents, last = path.split(".")

    def change(document: Document) -> None:
        for key in parents:
            document = document[key]
        document[last] = value

    return change


def test_what_can_be_served_is_read_with_the_layout_of_its_pool(engine: Path) -> None:
    manifest = read_engine(engine, HERE)
    assert manifest.tensorrt is not None and manifest.max_seq_len == 8192
    layout = KvLayout.of(manifest, manifest.tensorrt)
    assert layout == KvLayout(
        num_layers=32, num_kv_heads=4, tokens_per_block=32, head_size=128, item_bytes=2, max_seq_len=8192
    )
    assert layout.block_bytes == manifest.block_bytes == 2 * 2**20


def test_a_quantized_cache_has_one_byte_a_number_and_few_heads_are_doubled(engine: Path) -> None:
    manifest = replace(read_engine(engine, HERE), kv_cache_dtype="fp8", num_key_value_heads=1)
    assert manifest.tensorrt is not None
    layout = KvLayout.of(manifest, manifest.tensorrt)
    assert (layout.item_bytes, layout.num_kv_heads) == (1, 1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", "1.1.0", "version is '1.1.0', but here is '1.2.1'. Build it again"),
        ("jetway.built_with.tensorrt", "10.13.3.9", "jetway.built_with.tensorrt is '10.13.3.9', but here is '10.14.1"),
        ("jetway.compute_capability", "8.0", "jetway.compute_capability is '8.0', but here is '9.0'. Build it again"),
        (
            "pretrained_config.mapping.tp_size",
            1,
            "pretrained_config.mapping.tp_size is 1, but it is to be served on 2 GPUs. Build it with --tp-size 2.",
        ),
        (
            "build_config.plugin_config.use_paged_context_fmha",
            False,
            "build_config.plugin_config.use_paged_context_fmha is false: later chunks of a prompt",
        ),
        (
            "build_config.max_batch_size",
            2**22,
            "build_config.max_batch_size is 4194304: the block table's places pass int32. Build it with a smaller",
        ),
        # Of what the manifest's reader refuses, one of each kind; tests/builder has them all.
        ("build_config.plugin_config.manage_weights", True, "build_config.plugin_config.manage_weights is True; the"),
        ("build_config.max_seq_len", 8193, "build_config.max_seq_len is 8193; its RoPE table has 8192 rows"),
        ("jetway.files", {"rank0.engine": 4}, "jetway.files is ['rank0.engine']; tp_size 2 and pp_size 1 mean a rank1"),
    ],
)
def test_refused_by_field(engine: Path, path: str, value: object, message: str) -> None:
    def change(document: Document) -> None:
        changed("build_config.max_num_tokens", 2**23)(document)  # room for the largest batch
        changed(path, value)(document)

    write(engine, change)
    with pytest.raises(ConfigError) as refused:
        read_engine(engine, HERE)
    assert str(refused.value).startswith(f"{engine / 'config.json'}: {message}")


def test_pipelines_are_not_served(engine: Path) -> None:
    def change(document: Document) -> None:
        document["pretrained_config"]["mapping"] |= {"world_size": 4, "pp_size": 2}
        document["jetway"]["files"] |= {"rank2.engine": 4, "rank3.engine": 4}

    write(engine, change)
    for rank in (2, 3):
        (engine / f"rank{rank}.engine").write_bytes(b"plan")
    with pytest.raises(ConfigError, match="pp_size is 2, and pipelines are not served. Build it with --pp-size 1"):
        read_engine(engine, HERE)


def test_a_rank_that_is_listed_must_be_there(engine: Path) -> None:
    (engine / "rank1.engine").unlink()
    with pytest.raises(ConfigError, match=r"rank1.engine: does not exist, but config.json lists it. Copy the whole"):
        read_engine(engine, HERE)


def test_an_engine_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config.json: jetway.engine is 'openvino', not 'tensorrt'"):
        read_engine(write_engine(tmp_path, byte_level()), HERE)
