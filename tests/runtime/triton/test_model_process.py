"""The process of the model inside Triton."""

import json
import sys
from subprocess import PIPE, Popen

from tests.conftest import ROOT

CONFIG = {
    "parameters": {"jetway_url": {"string_value": "http://127.0.0.1:1"}, "max_requests": {"string_value": "1"}},
    "max_batch_size": 0,
    "output": [],
}
MODEL = """
import sys, threading
from tests.support.triton_model import TritonPythonModel
TritonPythonModel().initialize({"model_name": "ensemble", "model_config": sys.argv[1]})
print("loaded", flush=True)
threading.Event().wait()
"""
SERVER = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


def test_it_ends_with_the_server_that_started_it() -> None:
    """A killed one tells it nothing. It holds its output open for as long as it lives."""
    argv = [sys.executable, "-c", SERVER, MODEL, json.dumps(CONFIG)]
    with Popen(argv, cwd=ROOT, stdout=PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"loaded\n"
        server.kill()
        assert server.stdout.read() == b""
