"""Options of TensorRT engines that have no sense are refused by name."""

from typing import Any

import pytest

from jetway.builder.errors import OptionError
from jetway.builder.tensorrt.options import TensorRtOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp_size": 0}, "--tp-size 0: must be at least 1."),
        ({"pp_size": -1}, "--pp-size -1: must be at least 1."),
        ({"workers": 0}, "--workers 0: must be at least 1."),
        ({"gemm_plugin": "float16"}, "--gemm-plugin float16: not supported. Use auto or disable or fp8."),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        TensorRtOptions(**options)
    assert str(refused.value) == message
