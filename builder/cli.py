"""`build-engine`: a checkpoint in, an engine directory out."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import BuildError, OptionError
from .output import answer, say
from .progress import Progress
from .sizes import parse_bytes
from .spec import ENGINE, OFFERS, TOKENS_PER_BLOCK, BuildSpec
from .tensorrt.options import TensorRtOptions


def main(argv: list[str] | None = None) -> int:
    """0: the engine is there. 1: it could not be built. 2: an option is wrong. 130: interrupted."""
    arguments = _parser().parse_args(argv)
    try:
        spec = _spec(arguments)
        if arguments.convert_only and spec.engine != "tensorrt":
            raise OptionError("--convert-only: writes TensorRT-LLM's checkpoints. Pass --engine tensorrt with it.")
        if arguments.dry_run:
            return answer(_description(spec, arguments))
        if arguments.kv_cache_memory:
            raise OptionError("--kv-cache-memory: no part of an engine. Use it with --dry-run, or with jetway serve.")
        _build(spec, arguments)
    except BuildError as error:
        _complain(f"error: {error}", error)
        return 2 if isinstance(error, OptionError) else 1
    except KeyboardInterrupt as interrupt:
        _complain("interrupted; nothing has changed", interrupt)
        return 130
    return 0


def _build(spec: BuildSpec, arguments: argparse.Namespace) -> None:
    """Build or convert, and say what comes next. What each needs is imported here: `--help` needs none of it."""
    progress, force = Progress(say), arguments.force
    if spec.engine == "tensorrt":
        from .tensorrt import machine
        from .tensorrt import stages as tensorrt

        if arguments.convert_only:
            tensorrt.convert(spec, progress, machine.inspect, force=force)
            say(f"Build it with trtllm-build --checkpoint_dir {spec.output_dir}, or leave --convert-only out\n")
        else:
            tensorrt.build(spec, progress, machine.inspect, force=force)
            say(f"Serve it: jetway serve {spec.output_dir} --python {sys.executable}\n")
        return
    from .stages import build

    build(spec, progress, force=force)
    say(f"Serve it: jetway serve {spec.output_dir}\n")


def _spec(arguments: argparse.Namespace) -> BuildSpec:
    engine = ENGINE if arguments.engine == "auto" else arguments.engine
    offer = OFFERS.get(engine, OFFERS[ENGINE])
    return BuildSpec(
        model_dir=arguments.model_dir,
        output_dir=arguments.output_dir,
        engine=engine,
        dtype=offer.dtypes[0] if arguments.dtype == "auto" else arguments.dtype,
        quantization=None if arguments.quantization == "none" else arguments.quantization,
        kv_cache_dtype=offer.kv_cache_dtypes[0] if arguments.kv_cache_dtype == "auto" else arguments.kv_cache_dtype,
        max_batch_size=offer.max_batch_size if arguments.max_batch_size is None else arguments.max_batch_size,
        max_num_tokens=offer.max_num_tokens if arguments.max_num_tokens is None else arguments.max_num_tokens,
        max_seq_len=arguments.max_seq_len,
        tokens_per_block=arguments.tokens_per_block,
        tensorrt=TensorRtOptions(
            tp_size=arguments.tp_size,
            pp_size=arguments.pp_size,
            gemm_plugin=arguments.gemm_plugin,
            multiple_profiles=arguments.multiple_profiles == "enable",
            workers=arguments.workers,
            calib_dataset=arguments.calib_dataset,
        ),
    )


def _description(spec: BuildSpec, arguments: argparse.Namespace) -> str:
    pool: str | None = arguments.kv_cache_memory
    if spec.engine == "tensorrt":
        if pool is not None:
            raise OptionError("--kv-cache-memory: is of OpenVINO engines' pools. Leave it out.")
        from .tensorrt import dry_run as tensorrt
        from .tensorrt import plan as tensorrt_plan

        return tensorrt.describe(tensorrt_plan.make(spec), convert_only=arguments.convert_only)
    from . import dry_run, plan

    pool_bytes = dry_run.POOL_BYTES if pool is None else parse_bytes("--kv-cache-memory", pool)
    return "\n".join(dry_run.describe(plan.make(spec), pool_bytes))


def _complain(words: str, error: BaseException) -> None:
    print("\n".join([f"build-engine: {words}", *getattr(error, "__notes__", ())]), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build-engine", description="Build a model checkpoint into an engine directory.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--model-dir", type=Path, required=True, metavar="CKPT", help="Hugging Face directory, or GGUF file")
    add("--output-dir", type=Path, required=True, metavar="ENGINE", help="written whole or not at all")
    add("--engine", default="auto", help="openvino or tensorrt; auto is openvino (default: auto)")
    add("--dtype", default="auto", help="of the weights, unless quantized: float32, or TensorRT's float16, bfloat16")
    add("--quantization", default="none", help="of the weights: none, int8, or TensorRT's int4, fp8 (default: none)")
    add("--kv-cache-dtype", default="auto", help="f32, u8, or TensorRT's fp8, int8; auto takes the most exact one")
    limit: dict[str, Any] = {"type": int, "metavar": "N"}
    add("--max-batch-size", **limit, help=f"sequences in one step (default: {_each('max_batch_size')})")
    add("--max-num-tokens", **limit, help=f"tokens in one step (default: {_each('max_num_tokens')})")
    add("--max-seq-len", **limit, help="prompt and output (default: what the model's config allows)")
    add("--tokens-per-block", **limit, default=TOKENS_PER_BLOCK, help="(default: %(default)s)")
    add("--force", action="store_true", help="build anew, and replace another engine in ENGINE")
    add("--dry-run", action="store_true", help="print what would be built and how much it takes; write nothing")
    _add_tensorrt(parser.add_argument_group("TensorRT engines").add_argument)
    add("--kv-cache-memory", metavar="SIZE", help="with --dry-run: the pool to fill with sequences (default: 1GiB)")
    return parser


def _add_tensorrt(add: Callable[..., object]) -> None:
    add("--tp-size", type=int, default=1, metavar="N", help="ranks that share every layer (default: 1)")
    add("--pp-size", type=int, default=1, metavar="N", help="groups of ranks that share the layers out (default: 1)")
    add("--gemm-plugin", default="auto", help="auto, disable or fp8 (default: auto)")
    switch = ("enable", "disable")
    add("--multiple-profiles", choices=switch, default="disable", help="kernels by tokens in a step (default: disable)")
    add("--workers", type=int, metavar="N", help="ranks built at a time (default: one a GPU)")
    add("--calib-dataset", type=Path, metavar="DIR", help="texts that scales of fp8 and int8 are measured on")
    add("--convert-only", action="store_true", help="stop at the TensorRT-LLM checkpoint; needs no GPU")


def _each(field: str) -> str:
    """A default by engine."""
    return ", ".join(f"{getattr(offer, field)} for {engine}" for engine, offer in OFFERS.items())
