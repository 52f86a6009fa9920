import json
import os
import time
from pathlib import Path
from typing import Any

from tests.builder.tensorrt import contract

from .models.modeling_utils import FakeModel
from .plugin import PluginConfig

VERSION = "1.2.1"


class BuildConfig:
    def __init__(self, *, plugin_config: PluginConfig, **arguments: Any) -> None:
        assert contract.violations(arguments, contract.BUILD_CONFIG) == []
        self.arguments = arguments | {"plugin_config": dict(plugin_config.arguments)}


class Engine:
    def __init__(self, model: FakeModel, arguments: dict[str, Any]) -> None:
        self._model = model
        self._arguments = arguments

    def save(self, directory: str) -> None:
        """Every rank its engine, rank 0 the configuration."""
        config = self._model.config
        if os.environ.get("FAKE_TENSORRT_LLM") == "slow" and config.rank == 0:
            while not (Path(directory) / "rank2.engine").exists():
                time.sleep(0.01)
        (Path(directory) / f"rank{config.rank}.engine").write_bytes(b"engine of rank %d" % config.rank)
        if config.rank == 0:
            document = {"version": VERSION, "pretrained_config": config.fields, "build_config": self._arguments}
            (Path(directory) / "config.json").write_text(json.dumps(document))


def build(model: FakeModel, build_config: BuildConfig) -> Engine:
    fault = os.environ.get("FAKE_TENSORRT_LLM")
    if fault == "crash":
        raise RuntimeError("no tactic for this layer")
    arguments = build_config.arguments
    if fault == "warn":
        arguments["plugin_config"]["use_paged_context_fmha"] = False
    Path(arguments["output_timing_cache"]).write_bytes(b"timings")
    return Engine(model, arguments)
