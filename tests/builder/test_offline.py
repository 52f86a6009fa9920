"""A build talks to nobody."""

import subprocess
import sys


def test_openvino_reports_nothing() -> None:
    """OpenVINO falls back to its stub, whose calls do nothing."""
    code = (
        "from jetway.builder import offline; offline.enforce(); "
        "from openvino.tools.ovc import telemetry_utils; print(telemetry_utils.tm.__name__)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "openvino.tools.ovc.telemetry_stub\n"


def test_huggingface_is_offline() -> None:
    code = (
        "from jetway.builder import offline; offline.enforce(); "
        "import huggingface_hub.constants as hub; print(hub.HF_HUB_OFFLINE)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "True\n"
