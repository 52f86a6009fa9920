"""Which tensors of a checkpoint a model is made of: all of them, each found by name, and of the shape that is meant."""

from collections.abc import Iterator, Mapping

from jetway.builder import metadata
from jetway.builder.checkpoint import Checkpoint
from jetway.builder.errors import CheckpointError

from . import parallel, tensors
from .decoder import Decoder
from .options import TensorRtOptions
from .tensors import EMBEDDING, HEAD

PREFIX = "model."  # which checkpoints of the bare model leave out
IGNORED_TENSORS = ("rotary_emb.inv_freq",)  # constants that old versions of transformers saved
AGAIN = "Download the checkpoint again"

Shapes = Mapping[str, tuple[int, ...]]


def resolve(decoder: Decoder, shapes: Shapes, source: Checkpoint) -> dict[str, str]:
    """Every tensor of the model -> its name in the checkpoint, which has `shapes`.

    Raises CheckpointError for one that is missing or of another shape, and for one that has no place in the model: its
    architecture may be another than config.json says.
    """
    wanted = _shapes(decoder)
    found = {name: next(filter(shapes.__contains__, _candidates(name, decoder)), None) for name in wanted}
    names = {name: stored for name, stored in found.items() if stored is not None}
    if absent := sorted(wanted.keys() - names.keys()):
        problem = f"has no tensor {absent[0]} (of {len(absent)} that are missing)"
        raise CheckpointError(source.weights_file, problem, AGAIN)
    config_file = source.metadata_file.name
    for name, stored in names.items():
        if shapes[stored] != wanted[name]:
            sizes = f"has the shape {list(shapes[stored])}, but {config_file} means {list(wanted[name])}"
            raise CheckpointError(metadata.locate(source, stored), f"tensor {stored} {sizes}", AGAIN)
    for stored in sorted(shapes.keys() - names.values()):
        if not stored.endswith(IGNORED_TENSORS):
            problem = f"holds tensor {stored}, for which the model of {config_file} has no place"
            raise CheckpointError(metadata.locate(source, stored), problem, AGAIN)
    return names


def _shapes(decoder: Decoder) -> dict[str, tuple[int, ...]]:
    """Those of the tensors that a rank which holds the whole model is made of."""
    (whole,) = parallel.ranks(TensorRtOptions(), decoder.config.num_hidden_layers)
    parts = (part for tensor in tensors.of_rank(decoder, whole) for part in tensor.parts)
    return {part.tensor: part.shape for part in parts}


def _candidates(name: str, decoder: Decoder) -> Iterator[str]:
    """The names that a tensor may have, the best first. Tied, embedding and head may stand for each other."""
    both = [EMBEDDING, HEAD] if name == EMBEDDING else [HEAD, EMBEDDING]
    for each in both if decoder.has_tied_head and name in both else [name]:
        yield each
        yield each.removeprefix(PREFIX)
