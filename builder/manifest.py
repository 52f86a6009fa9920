"""The engine directory's `config.json`: written by the builder, read by the executor and the gateway.

This module is the one thing that `builder/` and `runtime/` share; it imports the standard library only.

The file keeps TensorRT-LLM's shape (contracts/tensorrt-llm.md section 2.6): `version`, `pretrained_config`,
`build_config`; what is ours stands under `jetway`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
OPENVINO_MODEL_FILE = "model.xml"


class ManifestError(ValueError):
    """The directory is not an engine that this version can serve; says file, field, value and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Special tokens. Ids and their text; a tokenizer may have none of them."""

    eos_ids: tuple[int, ...]  # sampling one of these ends a sequence
    bos: str | None
    eos: str | None
    unk: str | None
    pad: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One engine directory. Sizes in bytes, lengths in tokens."""

    engine: str  # "openvino" or "tensorrt"
    engine_id: str  # hex SHA-256 over what the engine computes with; equal ids give equal tokens
    model_name: str  # the name it is served under unless told otherwise
    architecture: str  # as Hugging Face names it, for example "LlamaForCausalLM"
    dtype: str  # of the weights: "float32"
    kv_cache_dtype: str  # "f32"
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    max_position_embeddings: int
    tokens_per_block: int
    max_batch_size: int  # most sequences in one step
    max_num_tokens: int  # most tokens in one step
    max_seq_len: int
    tokens: Tokens
    files: dict[str, int]  # every other file of the directory and its size
    built_with: dict[str, str]  # package versions

    @property
    def kv_bytes_per_token(self) -> int:
        sizes = {"f32": 4}
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_size * sizes[self.kv_cache_dtype]
