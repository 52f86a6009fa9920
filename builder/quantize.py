"""Weights as 8-bit integers, by NNCF: a quarter of the bytes, at the price of some exactness."""

import contextlib
import importlib.util
import io
import logging

import openvino as ov

from .errors import ConversionError, OptionError
from .interrupt import held_interrupts


def check_available() -> None:
    """Raise OptionError where NNCF, which the extra `int8` brings, is not installed."""
    if importlib.util.find_spec("nncf") is None:
        raise OptionError("--quantization int8: nncf is not installed. Install it with: pip install 'jetway-llm[int8]'")


def to_int8(model: ov.Model) -> ov.Model:
    """The model with every matrix in int8, each row with a scale and a zero point of its own. Raises ConversionError."""
    import nncf  # here, since it takes seconds

    nncf.set_log_level(logging.ERROR)
    try:
        with held_interrupts(), contextlib.redirect_stdout(io.StringIO()):  # its progress bars
            return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    except (RuntimeError, ValueError) as error:  # what both libraries raise
        raise ConversionError(f"the weights cannot be quantized to int8: {error}") from error
