"""The metadata of a GGUF file."""

from pathlib import Path

import pytest
from gguf import GGUFWriter
from safetensors.numpy import load_file

from jetway.builder import gguf
from jetway.builder.errors import CheckpointError
from tests.builder.tiny_gguf import write_gguf


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        gguf.read(path)
    return str(refused.value)


def test_read(tmp_path: Path, tiny_checkpoint: Path) -> None:
    found = gguf.read(write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint))
    weights = load_file(tiny_checkpoint / "model.safetensors")
    assert (len(found.shapes), found.num_parameters) == (len(weights), sum(tensor.size for tensor in weights.values()))
    assert found.config == {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
    }


def test_vocabulary_may_be_counted(tmp_path: Path, tiny_checkpoint: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint, left_out="llama.vocab_size")
    assert gguf.read(path).config["vocab_size"] == 300


def test_other_architecture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    writer = GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert refusal(path) == (
        f"{path}: general.architecture 'mamba' is not supported. Supported in GGUF is llama; build others from their "
        "safetensors."
    )


@pytest.mark.parametrize("key", ["llama.attention.head_count_kv", "llama.context_length", "tokenizer.ggml.tokens"])
def test_absent_key_is_refused(tmp_path: Path, tiny_checkpoint: Path, key: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint, left_out=key)
    assert refusal(path) == f"{path}: has no {key}. Convert the model to GGUF again."


def test_scaled_rope_is_refused(tmp_path: Path, tiny_checkpoint: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint, rope_scaling="yarn")
    assert refusal(path) == (
        f"{path}: scales its rotary embedding (llama.rope.scaling.type 'yarn', or rope_freqs.weight), which "
        "transformers does not read from GGUF. Build from the model's safetensors."
    )


def test_truncated_file_is_refused(tmp_path: Path, tiny_checkpoint: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf", tiny_checkpoint).read_bytes()
    path = tmp_path / "tiny.gguf"
    for size in (0, 3, 100, len(whole) // 2):
        path.write_bytes(whole[:size])
        assert refusal(path).startswith(f"{path}: is not a readable GGUF file (")


def test_other_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"not a model at all, but long enough")
    assert refusal(path).startswith(f"{path}: is not a readable GGUF file (")


def test_text_that_is_not_unicode_is_refused(tmp_path: Path, tiny_checkpoint: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf", tiny_checkpoint, rope_scaling="yarn").read_bytes()
    path = tmp_path / "tiny.gguf"
    path.write_bytes(whole.replace(b"yarn", b"ya\xffn"))
    assert refusal(path).startswith(f"{path}: is not a readable GGUF file ('utf-8' codec can't decode byte 0xff")
