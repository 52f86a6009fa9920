"""A tiny checkpoint as a GGUF file, written with llama.cpp's own writer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.support.checkpoints import CHAT_TEMPLATE, SPECIAL_TOKENS

Weights = NDArray[np.float32]


def write_gguf(path: Path, checkpoint: Path, *, left_out: str = "", rope_scaling: str | None = None) -> Path:
    """Write a Llama checkpoint of `make_llama_checkpoint` with f32 weights, without the key `left_out`."""
    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text())
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if rope_scaling is not None:
        writer.add_string("llama.rope.scaling.type", rope_scaling)
    _add_tokenizer(writer, json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8")))
    writer.kv_data[0].pop(left_out, None)
    for name, tensor in _tensors(checkpoint, config):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: GGUFWriter, tokenizer: dict[str, Any]) -> None:
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL_TOKENS else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)


def _tensors(checkpoint: Path, config: dict[str, Any]) -> Iterator[tuple[str, Weights]]:
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        if "q_proj" in name:
            tensor = _interleave(tensor, config["num_attention_heads"])
        elif "k_proj" in name:
            tensor = _interleave(tensor, config["num_key_value_heads"])
        yield str(names.get_name(name, try_suffixes=(".weight",))), tensor


def _interleave(rows: Weights, num_heads: int) -> Weights:
    """A head's rows in GGUF's order: it rotates rows (0, 1), (2, 3), ... together, Hugging Face (0, half), ..."""
    return rows.reshape(num_heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
