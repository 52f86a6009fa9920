"""Fixtures that need something a machine may lack: skipped by name, unless JETWAY_REQUIRE demands them."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it would fork, and post over the network

ROOT = Path(__file__).resolve().parent.parent
DEMO_ENGINE = ROOT / ".jetway" / "engines" / "smollm2-135m-instruct"
DEMO_CHECKPOINT = ROOT / ".jetway" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SHARED = ROOT.parent / "shared"


def require(name: str, path: Path, maker: str = "scripts/demo") -> Path:
    """The path, or a skip that names what is absent; a failure when JETWAY_REQUIRE (comma-separated) holds `name`."""
    if path.exists():
        return path
    if name in os.environ.get("JETWAY_REQUIRE", "").split(","):
        pytest.fail(f"JETWAY_REQUIRE demands {name!r}, but {path} does not exist")
    pytest.skip(f"{name}: {path} does not exist; {maker} makes it")


@pytest.fixture(scope="session")
def demo_engine() -> Path:
    """The engine directory of SmolLM2-135M-Instruct."""
    return require("model", DEMO_ENGINE)


@pytest.fixture(scope="session")
def demo_checkpoint() -> Path:
    """The GGUF of SmolLM2-135M-Instruct."""
    return require("model", DEMO_CHECKPOINT)


@pytest.fixture
def nncf() -> None:
    """NNCF is installed."""
    if importlib.util.find_spec("nncf") is not None:
        return
    if "int8" in os.environ.get("JETWAY_REQUIRE", "").split(","):
        pytest.fail("JETWAY_REQUIRE demands 'int8', but nncf is not installed")
    pytest.skip("int8: nncf is not installed; the extra int8 brings it")
