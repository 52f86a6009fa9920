"""What a checkpoint says of itself: its configuration, and its tensors' names and shapes, not their contents."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .checkpoint import INDEX_FILE, WEIGHTS_FILE, Checkpoint, read_json, read_weight_map
from .errors import CheckpointError
from .model_config import ModelConfig

FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Read in a moment, and before anything is allocated for the model."""

    config: dict[str, Any]  # the fields of config.json
    shapes: Mapping[str, tuple[int, ...]]  # of every tensor, by name

    @property
    def num_parameters(self) -> int:
        return sum(map(prod, self.shapes.values()))


def read(source: Checkpoint) -> Metadata:
    """Of a checkpoint in Hugging Face's layout. Raises CheckpointError for files that are not whole or do not agree."""
    shapes: dict[str, tuple[int, ...]] = {}
    files: dict[str, Path] = {}
    for file in source.weights:
        for name, shape in _read_header(file).items():
            if name in files:
                problem = f"holds tensor {name}, which {files[name].name} holds too"
                raise CheckpointError(file, problem, "Download both files again")
            shapes[name], files[name] = shape, file
    if source.weights[0].name != WEIGHTS_FILE:
        _check_index(source.directory / INDEX_FILE, files)
    return Metadata(read_json(source.metadata_file), shapes)


def check_plausible(metadata: Metadata, config: ModelConfig, file: Path) -> None:
    """Raise CheckpointError for a model larger than its weights, which could exhaust memory before it fails."""
    if config.num_hidden_layers > (num_tensors := len(metadata.shapes)):
        problem = f"num_hidden_layers is {config.num_hidden_layers}, but there are {num_tensors} tensors"
        raise CheckpointError(file, problem, "Download the checkpoint again")
    embedding = config.vocab_size * config.hidden_size
    if embedding > metadata.num_parameters:
        problem = (
            f"vocab_size {config.vocab_size} times hidden_size {config.hidden_size} is {embedding}, but all tensors "
            f"together hold {metadata.num_parameters} numbers"
        )
        raise CheckpointError(file, problem, "Download the checkpoint again")


def locate(source: Checkpoint, tensor: str) -> Path:
    """The file that holds a tensor, whose name may lack the prefix that the model gives it; for messages."""
    for file in source.weights:
        if file.suffix == ".safetensors" and any(tensor.endswith(name) for name in _read_header(file)):
            return file
    return source.weights[0]


def _read_header(file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in a file. The library checks that they fill the file exactly."""
    try:
        with safe_open(file, framework="numpy") as opened:
            names = opened.keys()
            slices = {name: opened.get_slice(name) for name in names}
            dtypes = {name: tensor.get_dtype() for name, tensor in slices.items()}
            shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(file, f"is not a whole safetensors file ({error})", "Download it again") from error
    for name, dtype in dtypes.items():
        if name.endswith(".weight") and dtype not in FLOATS:
            remedy = "Use the unquantized checkpoint of this model"
            raise CheckpointError(file, f"tensor {name} is {dtype}, not one of {', '.join(FLOATS)}", remedy)
    return shapes


def _check_index(index: Path, files: dict[str, Path]) -> None:
    """Raise CheckpointError where the index of a sharded checkpoint names a tensor that is elsewhere, or nowhere."""
    for name, file_name in read_weight_map(index).items():
        if name not in files or files[name].name != file_name:
            problem = f"has no tensor {name}, but {index.name} says so"
            raise CheckpointError(index.with_name(file_name), problem, "Download this file again")
