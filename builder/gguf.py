"""The metadata of a GGUF file, in the words of Hugging Face's config.json."""

from pathlib import Path
from typing import Any

from gguf import GGUFReader

from .errors import CheckpointError
from .metadata import Metadata

ARCHITECTURES = {"llama": "LlamaForCausalLM"}
# Without head_count_kv transformers would leave the rows of the key weights in GGUF's order.
REQUIRED_FIELDS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
}
OPTIONAL_FIELDS = {"rope.dimension_count": "head_dim", "vocab_size": "vocab_size"}
VOCABULARY = "tokenizer.ggml.tokens"


def read(path: Path) -> Metadata:
    """The metadata of a GGUF file. Raises CheckpointError, naming GGUF's own keys."""
    try:
        reader = GGUFReader(path)
        shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in reader.tensors}
        return Metadata(_config(reader, path), shapes)
    except (OSError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise CheckpointError(path, f"is not a readable GGUF file ({error})", "Download it again") from error


def _config(reader: GGUFReader, path: Path) -> dict[str, Any]:
    """The fields of config.json that an engine depends on."""
    architecture = _value(reader, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            path,
            f"general.architecture {architecture!r} is not supported",
            f"Supported in GGUF is {', '.join(ARCHITECTURES)}; build others from their safetensors",
        )
    _check_rope(reader, architecture, path)
    for key in (VOCABULARY, *(f"{architecture}.{key}" for key in REQUIRED_FIELDS)):
        if key not in reader.fields:
            raise CheckpointError(path, f"has no {key}", "Convert the model to GGUF again")
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[architecture]],
        "vocab_size": len(reader.fields[VOCABULARY].data),
    }
    for key, name in (REQUIRED_FIELDS | OPTIONAL_FIELDS).items():
        if f"{architecture}.{key}" in reader.fields:
            config[name] = _value(reader, f"{architecture}.{key}")
    return config


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return field.contents() if field else None


def _check_rope(reader: GGUFReader, architecture: str, path: Path) -> None:
    """Refuse a scaled rotary embedding: transformers reads none from GGUF and would compute another model."""
    scaling = _value(reader, f"{architecture}.rope.scaling.type")
    if scaling not in (None, "none") or any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
        raise CheckpointError(
            path,
            f"scales its rotary embedding ({architecture}.rope.scaling.type {scaling!r}, or rope_freqs.weight), which "
            "transformers does not read from GGUF",
            "Build from the model's safetensors",
        )
