"""A process that loads TensorRT-LLM 1.2.1 to convert a checkpoint or to build one rank's engine.

Started by `workers`: one request, a JSON object, on standard input; progress, a line each, on what was standard output
at its start. What the libraries print goes to the log. None of this has been run with TensorRT-LLM itself.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMPORTED = "tensorrt_llm imported"
Request = dict[str, Any]
Say = Callable[[str], None]


def build(request: Request, say: Say) -> None:
    """Build `rank` of the checkpoint in `checkpoint_dir` into `output_dir`, by `build_config`."""
    from tensorrt_llm.builder import BuildConfig
    from tensorrt_llm.builder import build as build_engine
    from tensorrt_llm.models.modeling_utils import PretrainedConfig
    from tensorrt_llm.plugin import PluginConfig

    say(IMPORTED)
    checkpoint = Path(request["checkpoint_dir"])
    config = PretrainedConfig.from_json_file(str(checkpoint / "config.json"))
    config.set_rank(request["rank"])
    model = _model_class(config.architecture).from_checkpoint(str(checkpoint), config=config)
    say("weights loaded")
    options = dict(request["build_config"])
    plugins = PluginConfig(**options.pop("plugin_config"))
    engine = build_engine(model, BuildConfig(**options, plugin_config=plugins))
    if engine is None:
        sys.exit("TensorRT built no engine; its reasons stand above")
    say("built")
    engine.save(request["output_dir"])


def convert(request: Request, say: Say) -> None:
    """Write `rank` of `model_dir` as a TensorRT-LLM checkpoint in `output_dir`, with plain weights."""
    from tensorrt_llm import Mapping
    from tensorrt_llm.models.modeling_utils import QuantConfig

    say(IMPORTED)
    model = _model_class(request["architecture"]).from_hugging_face(
        request["model_dir"],
        dtype=request["dtype"],
        mapping=Mapping(rank=request["rank"], **request["mapping"]),
        quant_config=QuantConfig(**request["quantization"]),
        load_model_on_cpu=True,
        trust_remote_code=False,  # upstream's default is to run a checkpoint's code
    )
    model.save_checkpoint(request["output_dir"], save_config=request["rank"] == 0)


def calibrate(request: Request, say: Say) -> None:
    """The same for all ranks, with scales measured on `calib_dataset`; needs a GPU."""
    from tensorrt_llm import Mapping
    from tensorrt_llm.models.modeling_utils import QuantConfig

    say(IMPORTED)
    _model_class(request["architecture"]).quantize(
        request["model_dir"],
        request["output_dir"],
        dtype=request["dtype"],
        mapping=Mapping(**request["mapping"]),
        quant_config=QuantConfig(**request["quantization"]),
        calib_dataset=request["calib_dataset"],
        trust_remote_code=False,
    )


def _model_class(architecture: str) -> Any:
    from tensorrt_llm.models import MODEL_MAP

    if architecture not in MODEL_MAP:
        sys.exit(f"TensorRT-LLM has no {architecture}. Build this model with --engine openvino.")
    return MODEL_MAP[architecture]


def _end_with_the_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # ends when the parent does
    os._exit(1)


def main() -> None:
    progress = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    jobs = {"build": build, "convert": convert, "calibrate": calibrate}
    jobs[request["job"]](request, lambda words: print(words, file=progress))


if __name__ == "__main__":
    main()
