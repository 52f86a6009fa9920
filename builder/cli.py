"""`build-engine`: a checkpoint in, an engine directory out."""

import argparse
import sys
from pathlib import Path
from typing import Any

from .errors import BuildError, OptionError
from .progress import Progress
from .sizes import parse_bytes
from .spec import DTYPE, ENGINE, KV_CACHE_DTYPE, MAX_BATCH_SIZE, MAX_NUM_TOKENS, TOKENS_PER_BLOCK, BuildSpec


def main(argv: list[str] | None = None) -> int:
    """0: the engine is there. 1: it could not be built. 2: an option is wrong. 130: interrupted."""
    arguments = _parser().parse_args(argv)
    try:
        spec = _spec(arguments)
        if arguments.dry_run:
            _describe(spec, arguments.kv_cache_memory)
            return 0
        if arguments.kv_cache_memory:
            raise OptionError("--kv-cache-memory: no part of an engine. Use it with --dry-run, or with jetway serve.")
        from .stages import build  # late: `--help` needs none of the packages that a build needs

        build(spec, Progress(_show), force=arguments.force)
    except BuildError as error:
        _complain(f"error: {error}", error)
        return 2 if isinstance(error, OptionError) else 1
    except KeyboardInterrupt as interrupt:
        _complain("interrupted; nothing has changed", interrupt)
        return 130
    print(f"Serve it: jetway serve {spec.output_dir}")
    return 0


def _spec(arguments: argparse.Namespace) -> BuildSpec:
    return BuildSpec(
        model_dir=arguments.model_dir,
        output_dir=arguments.output_dir,
        engine=ENGINE if arguments.engine == "auto" else arguments.engine,
        dtype=arguments.dtype,
        quantization=None if arguments.quantization == "none" else arguments.quantization,
        kv_cache_dtype=KV_CACHE_DTYPE if arguments.kv_cache_dtype == "auto" else arguments.kv_cache_dtype,
        max_batch_size=arguments.max_batch_size,
        max_num_tokens=arguments.max_num_tokens,
        max_seq_len=arguments.max_seq_len,
        tokens_per_block=arguments.tokens_per_block,
    )


def _describe(spec: BuildSpec, pool: str | None) -> None:
    from . import dry_run, plan

    pool_bytes = dry_run.POOL_BYTES if pool is None else parse_bytes("--kv-cache-memory", pool)
    for line in dry_run.describe(plan.make(spec), pool_bytes):
        print(line)


def _complain(words: str, error: BaseException) -> None:
    print("\n".join([f"build-engine: {words}", *getattr(error, "__notes__", ())]), file=sys.stderr)


def _show(text: str) -> None:
    print(text, end="", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build-engine", description="Build a model checkpoint into an engine directory.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--model-dir", type=Path, required=True, metavar="CKPT", help="Hugging Face directory, or GGUF file")
    add("--output-dir", type=Path, required=True, metavar="ENGINE", help="written whole or not at all")
    add("--engine", default="auto", help="openvino; auto takes what this version can build here (default: auto)")
    add("--dtype", default=DTYPE, help="of the weights, unless quantized (default: %(default)s)")
    add("--quantization", default="none", help="of the weights: none or int8 (default: %(default)s)")
    add("--kv-cache-dtype", default="auto", help="f32 or u8; auto takes the most exact one (default: auto)")
    limit: dict[str, Any] = {"type": int, "metavar": "N"}
    add("--max-batch-size", **limit, default=MAX_BATCH_SIZE, help="sequences in one step (default: %(default)s)")
    add("--max-num-tokens", **limit, default=MAX_NUM_TOKENS, help="tokens in one step (default: %(default)s)")
    add("--max-seq-len", **limit, help="prompt and output (default: what the model's config allows)")
    add("--tokens-per-block", **limit, default=TOKENS_PER_BLOCK, help="(default: %(default)s)")
    add("--force", action="store_true", help="build anew, and replace another engine in ENGINE")
    add("--dry-run", action="store_true", help="print what would be built and how much it takes; write nothing")
    add("--kv-cache-memory", metavar="SIZE", help="with --dry-run: the pool to fill with sequences (default: 1GiB)")
    return parser
