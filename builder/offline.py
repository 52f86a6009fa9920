"""A build talks to nobody."""

import os
import sys


def enforce() -> None:
    """Keep the libraries of a build off the network and off the screen. Call it before they are imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    # OpenVINO reports every import and conversion to a web service unless this package is absent; None says it is.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # typeshed does not know this meaning
