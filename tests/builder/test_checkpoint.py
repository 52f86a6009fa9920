"""Which files a checkpoint has. The files are empty: nothing here reads weights."""

import hashlib
import json
from pathlib import Path

import pytest

from jetway.builder import checkpoint
from jetway.builder.errors import CheckpointError

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def touch(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).write_text("{}")
    return directory


def write_index(directory: Path, weight_map: object) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_single_file(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "generation_config.json", "tokenizer.json", "model.safetensors", "README.md")
    found = checkpoint.find(tmp_path)
    assert found.weights == (tmp_path / "model.safetensors",)
    assert [path.name for path in found.files] == [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "model.safetensors",
    ]
    assert (found.gguf_file, found.metadata_file) == (None, tmp_path / "config.json")


def test_shards(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "tokenizer.json", *SHARDS)
    write_index(tmp_path, {"a": SHARDS[1], "b": SHARDS[0], "c": SHARDS[1]})
    assert checkpoint.find(tmp_path).weights == tuple(tmp_path / name for name in SHARDS)


def test_gguf_by_file_and_by_directory(tmp_path: Path) -> None:
    touch(tmp_path, "model.gguf")
    found = checkpoint.find(tmp_path / "model.gguf")
    assert (found.gguf_file, found.metadata_file) == ("model.gguf", tmp_path / "model.gguf")
    assert checkpoint.find(tmp_path) == found


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.find(path)
    return str(refused.value)


def test_absent_path_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert refusal(path) == f"{path}: does not exist. Pass a checkpoint's directory or .gguf file as --model-dir."


def test_other_file_is_refused(tmp_path: Path) -> None:
    path = touch(tmp_path, "model.onnx") / "model.onnx"
    assert refusal(path) == f"{path}: is neither a directory nor a .gguf file. Pass one of these as --model-dir."


def test_empty_directory_is_refused(tmp_path: Path) -> None:
    expected = f"{tmp_path}: holds neither config.json nor a .gguf file. Pass a checkpoint's directory."
    assert refusal(tmp_path) == expected


def test_several_ggufs_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a.gguf", "b.gguf")
    expected = f"{tmp_path}: holds 2 GGUF files (a.gguf, b.gguf). Pass one of the files as --model-dir."
    assert refusal(tmp_path) == expected


def test_pickle_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "tokenizer.json", "pytorch_model.bin")
    assert refusal(tmp_path) == (
        f"{tmp_path / 'pytorch_model.bin'}: is a pickle, which could run code when read, and there are no safetensors. "
        "Download the safetensors of this model, or convert it with save_pretrained."
    )


def test_absent_weights_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "tokenizer.json")
    expected = f"{tmp_path}: holds neither model.safetensors nor model.safetensors.index.json. Download the weights."
    assert refusal(tmp_path) == expected


def test_absent_shard_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "tokenizer.json", SHARDS[0])
    write_index(tmp_path, {"a": SHARDS[0], "b": SHARDS[1]})
    assert refusal(tmp_path) == (
        f"{tmp_path / SHARDS[1]}: does not exist, but model.safetensors.index.json names it. Download this shard."
    )


def test_index_without_map_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "tokenizer.json")
    write_index(tmp_path, [])
    assert refusal(tmp_path) == (
        f"{tmp_path / 'model.safetensors.index.json'}: weight_map is [], not a map of tensors to files. "
        "Download it again."
    )


def test_absent_tokenizer_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "model.safetensors")
    assert refusal(tmp_path) == (
        f"{tmp_path}: holds no tokenizer (tokenizer.json or tokenizer.model). Put the model's tokenizer.json there."
    )


def test_broken_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[1]")
    with pytest.raises(CheckpointError) as refused:
        checkpoint.read_json(path)
    assert str(refused.value) == f"{path}: holds list, not an object. Download it again."
    path.write_text("{")
    with pytest.raises(CheckpointError, match="is not readable JSON"):
        checkpoint.read_json(path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/model.safetensors", "sub/model.safetensors", 7])
def test_index_that_names_other_places_is_refused(tmp_path: Path, name: object) -> None:
    touch(tmp_path, "config.json", "tokenizer.json", SHARDS[0])
    write_index(tmp_path, {"a": SHARDS[0], "b": name})
    assert refusal(tmp_path) == (
        f"{tmp_path / 'model.safetensors.index.json'}: weight_map names {name!r}, not a file beside it. "
        "Download it again."
    )


def test_json_bombs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="is not readable JSON"):
        checkpoint.read_json(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no room
    with pytest.raises(CheckpointError) as refused:
        checkpoint.read_json(path)
    assert str(refused.value) == (
        f"{path}: has 1099511627776 bytes, more than the 67108864 of any real one. Download it again."
    )


def test_digests_follow_contents(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "tokenizer.json", "model.safetensors", "README.md")
    found = checkpoint.find(tmp_path)
    before = found.digests()
    assert list(before) == ["config.json", "tokenizer.json", "model.safetensors"]
    assert before["config.json"] == hashlib.sha256(b"{}").hexdigest()
    (tmp_path / "README.md").write_text("other")
    assert found.digests() == before
    (tmp_path / "model.safetensors").write_text("other")
    assert found.digests() == before | {"model.safetensors": hashlib.sha256(b"other").hexdigest()}


def test_a_gguf_is_the_same_under_any_name(tmp_path: Path) -> None:
    touch(tmp_path, "a.gguf", "b.gguf")
    first, second = (checkpoint.find(tmp_path / name).digests() for name in ("a.gguf", "b.gguf"))
    assert first == second


@pytest.mark.parametrize(
    ("names", "file"),
    [
        ((), "tokenizer_config.json"),
        (("chat_template.json",), "chat_template.json"),
        (("chat_template.json", "chat_template.jinja"), "chat_template.jinja"),
    ],
)
def test_template_file(tmp_path: Path, names: tuple[str, ...], file: str) -> None:
    touch(tmp_path, "config.json", "tokenizer.json", "model.safetensors", *names)
    assert checkpoint.find(tmp_path).template_file == tmp_path / file
