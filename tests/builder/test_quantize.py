"""Weights as 8-bit integers."""

import importlib.util

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from jetway.builder import quantize
from jetway.builder.errors import OptionError


def make_model() -> ov.Model:
    weights = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
    rows = ops.parameter(ov.PartialShape([-1, 64]), ov.Type.f32)
    return ov.Model([ops.matmul(rows, ops.constant(weights), False, False)], [rows])


def compute(model: ov.Model) -> np.ndarray:
    rows = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float32)
    result: np.ndarray = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(rows)[0]
    return result


def test_to_int8(nncf: None, capfd: pytest.CaptureFixture[str]) -> None:
    exact = compute(make_model())
    quantized = quantize.to_int8(make_model())
    assert ov.Type.u8 in {node.get_element_type() for node in quantized.get_ops()}
    np.testing.assert_allclose(compute(quantized), exact, atol=0.02 * np.abs(exact).max())
    assert capfd.readouterr() == ("", "")


def test_absent_nncf_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionError) as refused:
        quantize.check_available()
    assert str(refused.value) == (
        "--quantization int8: nncf is not installed. Install it with: pip install 'jetway-llm[int8]'"
    )
