"""Sliding windows: how far the layers of a model see."""

from collections.abc import Sequence
from pathlib import Path

from .errors import CheckpointError
from .model_config import LARGEST

SLIDING, FULL = "sliding_attention", "full_attention"  # in `layer_types`


def by_layer(layer_types: Sequence[object], window: object, file: Path) -> tuple[int | None, ...]:
    """How many tokens a token of each layer sees, itself included; None: all before it.

    `window` is that of the sliding layers, `file` the config.json that says so. Raises CheckpointError.
    """
    windows: list[int | None] = []
    for layer_type in layer_types:
        if layer_type == FULL:
            windows.append(None)
        elif layer_type != SLIDING:
            problem, remedy = f"layer_types has {layer_type!r}", f"Supported are {SLIDING!r} and {FULL!r}"
            raise CheckpointError(file, problem, remedy)
        elif type(window) is int and 1 <= window <= LARGEST:
            windows.append(window)
        else:
            problem = f"sliding_window is {window!r}, not a positive integer up to {LARGEST}"
            raise CheckpointError(file, problem, "Download the checkpoint again")
    return tuple(windows)


def shortest(windows: Sequence[int | None]) -> int | None:
    """That of the layer which sees fewest tokens; None: all layers see all."""
    return min((window for window in windows if window is not None), default=None)
