"""The noise of `executor/noise.py` where the logits are: the same bits from torch's signed integers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# The constants of splitmix64 as int64, which wraps where uint64 does.
GAMMA = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
SECOND_FACTOR = 0x94D049BB133111EB - 2**64


def mix64(values: "Tensor") -> "Tensor":
    """splitmix64's finalizer on int64 that stand for uint64."""
    values = (values ^ _shifted(values, 30)) * FIRST_FACTOR
    values = (values ^ _shifted(values, 27)) * SECOND_FACTOR
    return values ^ _shifted(values, 31)


def gumbel_noise(keys: "Tensor", tokens: "Tensor") -> "Tensor":
    """Standard Gumbel noise, float32, of each token under the key beside it; both int64."""
    bits = _shifted(mix64(tokens * GAMMA + keys), 32)
    uniform = (bits.float() + 0.5) * 2.0**-32
    return -(-(-uniform.clamp(max=1.0 - 2.0**-24)).log1p()).log()


def _shifted(values: "Tensor", num_bits: int) -> "Tensor":
    """Shift right; zeros come in from the left, where int64 would repeat the sign."""
    return (values >> num_bits) & ((1 << (64 - num_bits)) - 1)
