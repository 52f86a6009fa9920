"""A checkpoint on disk: which files it has, and which of them an engine is made of. Nothing in it is executed."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CheckpointError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")
MAX_JSON_BYTES = 64 << 20  # the index of a model of 100,000 tensors has 10 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint, complete: every file in `files` exists."""

    directory: Path
    gguf_file: str | None  # its name in `directory`; None: the directory is in Hugging Face's layout
    weights: tuple[Path, ...]
    files: tuple[Path, ...]  # everything that an engine is made of, weights included

    @property
    def metadata_file(self) -> Path:
        """Where the model's configuration stands; for messages."""
        return self.directory / (self.gguf_file or CONFIG_FILE)

    @property
    def weights_file(self) -> Path:
        """Where all tensors are listed; for messages."""
        return self.weights[0] if len(self.weights) == 1 else self.directory / INDEX_FILE

    @property
    def template_file(self) -> Path:
        """Where a chat template stands, if there is one; for messages."""
        names = {path.name for path in self.files}
        own = [name for name in ("chat_template.jinja", "chat_template.json") if name in names]
        return self.metadata_file if self.gguf_file else self.directory / [*own, "tokenizer_config.json"][0]

    @property
    def generation_file(self) -> Path:
        """Where the end tokens stand; for messages."""
        file = self.directory / GENERATION_FILE
        return file if file in self.files else self.metadata_file

    def digests(self) -> dict[str, str]:
        """Hex SHA-256 of every file by its name. Reads all of them."""
        # A GGUF stays the same model under another name.
        return {path.suffix if self.gguf_file else path.name: _content_digest(path) for path in self.files}


def _content_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})", "Check the file's permissions") from error


def find(path: Path) -> Checkpoint:
    """The checkpoint at `path`: a GGUF file, a directory with one, or a directory in Hugging Face's layout."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(path, "is neither a directory nor a .gguf file", "Pass one of these as --model-dir")
        return _gguf(path)
    if not path.is_dir():
        raise CheckpointError(path, "does not exist", "Pass a checkpoint's directory or .gguf file as --model-dir")
    if (path / CONFIG_FILE).is_file():
        return _huggingface(path)
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return _gguf(found[0])
    if found:
        names = ", ".join(file.name for file in found)
        raise CheckpointError(path, f"holds {len(found)} GGUF files ({names})", "Pass one of the files as --model-dir")
    raise CheckpointError(path, f"holds neither {CONFIG_FILE} nor a .gguf file", "Pass a checkpoint's directory")


def _gguf(path: Path) -> Checkpoint:
    return Checkpoint(directory=path.parent, gguf_file=path.name, weights=(path,), files=(path,))


def _huggingface(directory: Path) -> Checkpoint:
    weights = _weights(directory)
    tokenizer = tuple(directory / name for name in TOKENIZER_FILES if (directory / name).is_file())
    if not {"tokenizer.json", "tokenizer.model", "vocab.json"} & {path.name for path in tokenizer}:
        raise CheckpointError(
            directory, "holds no tokenizer (tokenizer.json or tokenizer.model)", "Put the model's tokenizer.json there"
        )
    other = (directory / name for name in (INDEX_FILE, GENERATION_FILE))
    files = (directory / CONFIG_FILE, *(path for path in other if path.is_file()), *tokenizer, *weights)
    return Checkpoint(directory=directory, gguf_file=None, weights=weights, files=files)


def _weights(directory: Path) -> tuple[Path, ...]:
    """The safetensors files, single or sharded, in a fixed order."""
    if (directory / WEIGHTS_FILE).is_file():
        return (directory / WEIGHTS_FILE,)
    index = directory / INDEX_FILE
    if not index.is_file():
        pickles = sorted(path.name for pattern in PICKLE_PATTERNS for path in directory.glob(pattern))
        if pickles:
            raise CheckpointError(
                directory / pickles[0],
                "is a pickle, which could run code when read, and there are no safetensors",
                "Download the safetensors of this model, or convert it with save_pretrained",
            )
        raise CheckpointError(directory, f"holds neither {WEIGHTS_FILE} nor {INDEX_FILE}", "Download the weights")
    shards = tuple(directory / name for name in sorted(set(read_weight_map(index).values())))
    for shard in shards:
        if not shard.is_file():
            raise CheckpointError(shard, f"does not exist, but {INDEX_FILE} names it", "Download this shard")
    return shards


def read_weight_map(index: Path) -> dict[str, str]:
    """Tensor names to the names of the files beside `index` that hold them. Raises CheckpointError."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        problem = f"weight_map is {weight_map!r}, not a map of tensors to files"
        raise CheckpointError(index, problem, "Download it again")
    for name in weight_map.values():
        if not isinstance(name, str) or name != Path(name).name:
            raise CheckpointError(index, f"weight_map names {name!r}, not a file beside it", "Download it again")
    return weight_map


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises CheckpointError when it is something else."""
    try:
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            problem = f"has {size} bytes, more than the {MAX_JSON_BYTES} of any real one"
            raise CheckpointError(path, problem, "Download it again")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(path, f"is not readable JSON ({error})", "Download it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(path, f"holds {type(value).__name__}, not an object", "Download it again")
    return value
