"""A TensorRT engine's directory: the config.json of TensorRT-LLM and the builder, and the ranks' engines, empty of sense."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def make_document(changes: Mapping[str, object] | None = None) -> Document:
    """A Llama 3 8B on two GPUs, as TensorRT-LLM and the builder leave it. `changes` are values by dotted name."""
    document: Document = {
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
            "rotary_base": 500000.0,
            "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1, "gpus_per_node": 8},
            "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
        },
        "build_config": {
            "max_batch_size": 64,
            "max_num_tokens": 512,
            "max_seq_len": 8192,
            "max_beam_width": 1,
            "kv_cache_type": "PAGED",
            "gather_context_logits": False,
            "weight_streaming": False,
            "use_refit": False,
            "use_strip_plan": False,
            "plugin_config": {
                "gpt_attention_plugin": "auto",
                "gemm_plugin": "auto",
                "remove_input_padding": True,
                "tokens_per_block": 32,
                "use_paged_context_fmha": True,
                "manage_weights": False,
                "streamingllm": False,
            },
        },
        "jetway": {
            "format": 1,
            "engine": "tensorrt",
            "engine_id": "ab" * 32,
            "model_name": "llama",
            "quantization": None,
            "kv_cache_dtype": "bfloat16",
            "compute_capability": "9.0",
            "sliding_windows": [],
            "tokens": {"eos_ids": [128001], "bos": None, "eos": None, "unk": None, "pad": None},
            "files": {"rank0.engine": 4, "rank1.engine": 4},
            "built_with": {"jetway-llm": "0.1.0", "tensorrt": "10.14.1.48", "tensorrt_llm": "1.2.1"},
        },
    }
    for name, value in (changes or {}).items():
        _set(document, name, value)
    return document


def pipelined(num_stages: int) -> dict[str, object]:
    """The changes that give every one of two tensor-parallel ranks so many stages."""
    return {
        "pretrained_config.mapping.pp_size": num_stages,
        "pretrained_config.mapping.world_size": 2 * num_stages,
        "jetway.files": {f"rank{rank}.engine": 4 for rank in range(2 * num_stages)},
    }


def write_document(document: Document, directory: Path) -> Path:
    """`directory`, with every file that `document` lists."""
    for name, size in document.get("jetway", {}).get("files", {}).items():
        (directory / name).write_bytes(bytes(size))
    (directory / "config.json").write_text(json.dumps(document))
    return directory


def _set(document: Document, name: str, value: object) -> None:
    *sections, field = name.split(".")
    for section in sections:
        document = document[section]
    document[field] = value
