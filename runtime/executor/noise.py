"""Random numbers as a function of their key: no state, no order, so no batch can move them.

The generator is splitmix64 (Steele, Lea, Flood 2014), read at any place: output number i of a stream is
`mix64(key + i * GAMMA)`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .base import Int64Array, SamplingState

Float32Array = NDArray[np.float32]
Uint64Array = NDArray[np.uint64]

GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix64(values: Uint64Array) -> Uint64Array:
    """splitmix64's finalizer: a bijection of 64 bits whose values look random."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def noise_keys(states: Sequence[SamplingState]) -> Uint64Array:
    """Hash (seed, sequence index, position of the next token) of each state to 64 bits."""
    parts = [(state.params.seed, state.sequence_index, len(state.tokens)) for state in states]
    keys = np.zeros(len(parts), np.uint64)
    for column in np.array(parts, np.uint64).reshape(-1, 3).T:
        keys = mix64(keys + column + GAMMA)
    return keys


def gumbel_noise(key: np.uint64, tokens: Int64Array) -> Float32Array:
    """Standard Gumbel noise of each token: -log of an exponential variate, made of output number `token`.

    The winner is decided where the exponential is small; there f32 resolves it to 2^-33.
    """
    bits = mix64(tokens.astype(np.uint64) * GAMMA + key) >> np.uint64(32)
    uniform = (bits.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    exponential: Float32Array = -np.log1p(-np.minimum(uniform, np.float32(1.0 - 2.0**-24)))
    return -np.log(exponential)
