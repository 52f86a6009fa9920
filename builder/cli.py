"""`build-engine`: a checkpoint in, an engine directory out."""

import argparse
import sys
from pathlib import Path

from .errors import BuildError, OptionError
from .progress import Progress
from .spec import DTYPE, ENGINE, KV_CACHE_DTYPE, MAX_BATCH_SIZE, MAX_NUM_TOKENS, TOKENS_PER_BLOCK, BuildSpec


def main(argv: list[str] | None = None) -> int:
    """0: the engine is there. 1: it could not be built. 2: an option is wrong. 130: interrupted."""
    arguments = _parser().parse_args(argv)
    from .stages import build  # late: `--help` needs none of the packages that a build needs

    try:
        spec = BuildSpec(
            model_dir=arguments.model_dir,
            output_dir=arguments.output_dir,
            engine=ENGINE if arguments.engine == "auto" else arguments.engine,
            dtype=arguments.dtype,
            kv_cache_dtype=KV_CACHE_DTYPE if arguments.kv_cache_dtype == "auto" else arguments.kv_cache_dtype,
            max_batch_size=arguments.max_batch_size,
            max_num_tokens=arguments.max_num_tokens,
            max_seq_len=arguments.max_seq_len,
            tokens_per_block=arguments.tokens_per_block,
        )
        build(spec, Progress(_show), force=arguments.force)
    except BuildError as error:
        print(f"build-engine: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1
    except KeyboardInterrupt:
        print("build-engine: interrupted; nothing has changed", file=sys.stderr)
        return 130
    print(f"Serve it: jetway serve {spec.output_dir}")
    return 0


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
    add("--dtype", default=DTYPE, help="of the weights (default: %(default)s)")
    add("--kv-cache-dtype", default="auto", help="f32; auto takes the engine's most exact one (default: auto)")
    add(
        "--max-batch-size",
        type=int,
        metavar="N",
        default=MAX_BATCH_SIZE,
        help="sequences in one step (default: %(default)s)",
    )
    add(
        "--max-num-tokens",
        type=int,
        metavar="N",
        default=MAX_NUM_TOKENS,
        help="tokens in one step (default: %(default)s)",
    )
    add("--max-seq-len", type=int, metavar="N", help="prompt and output (default: the model's max_position_embeddings)")
    add("--tokens-per-block", type=int, metavar="N", default=TOKENS_PER_BLOCK, help="(default: %(default)s)")
    add("--force", action="store_true", help="build anew, and replace another engine in ENGINE")
    return parser
