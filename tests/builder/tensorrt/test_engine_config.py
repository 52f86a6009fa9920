"""A TensorRT engine's directory is read back, or refused by file, field, value and remedy before anything is loaded."""

import json
from pathlib import Path

import pytest

from jetway.builder import manifest
from jetway.builder.errors import ConversionError
from jetway.builder.fields import Fields
from jetway.builder.manifest import ManifestError, TensorRtBuild
from jetway.builder.tensorrt.engine_config import check_as_asked
from tests.support.trt_manifest import make_document, pipelined, write_document

REMEDY = "Build the engine with build-engine."
PLUGINS = "build_config.plugin_config"


def test_read(tmp_path: Path) -> None:
    changes = {
        **pipelined(2),
        "pretrained_config.num_hidden_layers": 5,
        "pretrained_config.num_key_value_heads": 6,
        "jetway.kv_cache_dtype": "fp8",
        "pretrained_config.quantization.kv_cache_quant_algo": "FP8",
    }
    engine = manifest.read(write_document(make_document(changes), tmp_path))
    assert engine.tensorrt == TensorRtBuild(
        tensorrt_llm_version="1.2.1",
        tensorrt_version="10.14.1.48",
        compute_capability="9.0",
        tp_size=2,
        pp_size=2,
        logits_dtype="float32",
    )
    assert (engine.dtype, engine.kv_cache_dtype, engine.tokens_per_block) == ("bfloat16", "fp8", 32)
    assert engine.block_bytes == 3 * 3 * 2 * 32 * 128  # layers and heads of the fullest rank, keys and values, 1 byte


def test_write_keeps_what_tensorrt_llm_wrote(tmp_path: Path) -> None:
    document = make_document()
    engine = manifest.read(write_document(document, tmp_path))
    del document["jetway"]
    write_document(document, tmp_path)
    manifest.write(engine, tmp_path)
    assert manifest.read(tmp_path) == engine
    written = json.loads((tmp_path / "config.json").read_text())
    assert {name: written[name] for name in document} == document


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("build_config.kv_cache_type", "continuous", "is 'continuous'; steps need a paged cache"),
        (f"{PLUGINS}.remove_input_padding", False, "is False; steps are packed, so it must be true"),
        (
            f"{PLUGINS}.use_paged_context_fmha",
            False,
            "is False; without it a chunk of a prompt would not see those before it",
        ),
        (f"{PLUGINS}.use_paged_context_fmha", "enable", "is 'enable'; it must be true or false"),
        (f"{PLUGINS}.gpt_attention_plugin", None, "is None; steps need this plugin"),
        (f"{PLUGINS}.manage_weights", True, "is True; the weights must be inside the engine"),
        ("build_config.weight_streaming", True, "is True; the weights must be inside the engine"),
        ("build_config.gather_context_logits", True, "is True; steps have one row of logits a sequence"),
        ("build_config.use_strip_plan", True, "is True; the weights must be inside the engine"),
        ("build_config.use_refit", True, "is True; the weights must be inside the engine"),
        ("build_config.max_beam_width", 4, "is 4; steps have one beam"),
        ("build_config.max_draft_len", 5, "is 5; steps have no drafts"),
        ("build_config.max_prompt_embedding_table_size", 8, "is 8; steps have no prompt embeddings"),
        (f"{PLUGINS}.lora_plugin", "auto", "is 'auto'; steps have no LoRA weights"),
        (f"{PLUGINS}.streamingllm", True, "is True; a cache with sink tokens excludes paged context"),
        (f"{PLUGINS}.gpt_attention_plugin", False, "is False; steps need this plugin"),
        ("jetway.sliding_windows", [4096] * 32, f"is {[4096] * 32}; a TensorRT engine's layers see all tokens"),
        ("pretrained_config.logits_dtype", "bfloat16", "is 'bfloat16'; this version knows float32, float16"),
        ("pretrained_config.mapping.world_size", 8, "is 8; tp_size 2 and pp_size 1 mean 2"),
        ("pretrained_config.mapping.pp_partition", [32], "is [32]; stages have as many layers each, or one more"),
        ("pretrained_config.mapping.cp_size", 2, "is 2; steps are not split by their tokens"),
        ("pretrained_config.num_attention_heads", 31, "is 31; tp_size 2 does not divide it"),
        (
            "pretrained_config.num_key_value_heads",
            3,
            "is 3; it neither divides tp_size 2 nor is divided by it",
        ),
        ("pretrained_config.quantization.kv_cache_quant_algo", "INT8", "is 'INT8'; it excludes paged context"),
        (
            "jetway.kv_cache_dtype",
            "u8",
            "is 'u8'; pretrained_config.quantization.kv_cache_quant_algo None means bfloat16",
        ),
        (f"{PLUGINS}.tokens_per_block", 48, "is 48; it must be a power of two"),
        (
            "build_config.max_num_tokens",
            95,
            "is 95; max_batch_size decodes and one block of prefill need 96",
        ),
        ("build_config.max_batch_size", 1 << 23, "is 8388608; its block table exceeds 32 bits"),
        ("build_config.max_seq_len", 8193, "is 8193; its RoPE table has 8192 rows"),
        (
            "jetway.files",
            {"rank1.engine": 4},
            "is ['rank1.engine']; tp_size 2 and pp_size 1 mean a rank0.engine",
        ),
    ],
)
def test_refused(tmp_path: Path, name: str, value: object, problem: str) -> None:
    with pytest.raises(ManifestError) as refused:
        manifest.read(write_document(make_document({name: value}), tmp_path))
    assert str(refused.value) == f"{tmp_path / 'config.json'}: {name} {problem}. {REMEDY}"


def test_a_stage_without_a_layer_is_refused(tmp_path: Path) -> None:
    document = make_document(pipelined(3) | {"pretrained_config.num_hidden_layers": 2})
    with pytest.raises(ManifestError, match=r"mapping.pp_size is 3; pretrained_config.num_hidden_layers is 2. "):
        manifest.read(write_document(document, tmp_path))


def test_a_ranks_file_that_is_not_there(tmp_path: Path) -> None:
    write_document(make_document(), tmp_path)
    (tmp_path / "rank1.engine").unlink()
    with pytest.raises(ManifestError) as refused:
        manifest.read(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / 'rank1.engine'}: does not exist, but config.json lists it. Copy the whole directory again."
    )


def test_an_engine_of_trtllm_build_alone(tmp_path: Path) -> None:
    document = make_document()
    del document["jetway"]
    with pytest.raises(ManifestError, match=r"has no jetway\.format\. Build the engine with build-engine"):
        manifest.read(write_document(document, tmp_path))


def test_what_was_built_is_what_was_asked(tmp_path: Path) -> None:
    document = make_document()
    fields = Fields(write_document(document, tmp_path) / "config.json")
    asked = document["build_config"] | {"kv_cache_type": "paged"}
    asked["plugin_config"] = asked["plugin_config"] | {"gpt_attention_plugin": "bfloat16"}
    check_as_asked(fields, asked)


@pytest.mark.parametrize(
    ("name", "built", "words"),
    [
        ("build_config.max_num_tokens", 256, "max_num_tokens 512 and built 256"),
        ("build_config.kv_cache_type", "continuous", "kv_cache_type PAGED and built continuous"),
        ("build_config.gather_context_logits", True, "gather_context_logits False and built True"),
        (f"{PLUGINS}.gpt_attention_plugin", None, "plugin_config.gpt_attention_plugin auto and built None"),
        (f"{PLUGINS}.use_paged_context_fmha", False, "plugin_config.use_paged_context_fmha True and built False"),
    ],
)
def test_what_was_built_is_not_what_was_asked(tmp_path: Path, name: str, built: object, words: str) -> None:
    fields = Fields(write_document(make_document({name: built}), tmp_path) / "config.json")
    with pytest.raises(ConversionError) as failed:
        check_as_asked(fields, make_document()["build_config"])
    assert str(failed.value) == f"TensorRT-LLM was asked for {words}. The logs have its reason."
