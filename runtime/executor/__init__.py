"""Both ends of the step boundary."""

import sys

# OpenVINO reports every import to a web service, from a forked process, unless this package is absent; None says it is.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # typeshed does not know this meaning
