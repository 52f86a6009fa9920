"""What scripts/gpu-check does. Without a GPU the engine is OpenVINO's, and the report says so."""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jetway.builder.cli import main as build_engine
from jetway.builder.manifest import read
from jetway.runtime.config import ExecutorConfig, ServeConfig
from jetway.runtime.doctor.examine import examine
from jetway.runtime.doctor.findings import Finding, Outcome, as_report, attempt
from jetway.runtime.executor.tensorrt.cuda import torch_device
from jetway.runtime.serve import load_engine
from tests.runtime.executor.random_mix import RandomMix
from tests.support.checkpoints import make_checkpoint
from tests.support.trt_references import references

BLOCK_SIZE = 32
NUM_DEVICE_BLOCKS, NUM_HOST_BLOCKS = 40, 60  # what random plans use of an engine at most
LIMITS = {"max-batch-size": 8, "max-num-tokens": 16 * BLOCK_SIZE, "max-seq-len": 12 * BLOCK_SIZE}


# Weights this small keep attention soft: float16 then moves logits by 0.005, where wide ones let it move them by 0.5.
MODEL = {
    "hidden_size": 256,
    "head_dim": 64,  # the attention kernels know few sizes
    "initializer_range": 0.05,
    "max_position_embeddings": LIMITS["max-seq-len"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An engine, and how near to Hugging Face in float32 its type can be."""

    engine: str
    dtype: str
    num_prompts: int  # that are tried; those with a token that is not clear are left out
    num_tokens: int
    min_margin: float  # between the logits of the best two: what is clear
    logprob_tolerance: float


TARGETS = {
    "cuda": Target(
        engine="tensorrt", dtype="float16", num_prompts=150, num_tokens=12, min_margin=0.03, logprob_tolerance=0.02
    ),
    "cpu": Target(
        engine="openvino", dtype="float32", num_prompts=30, num_tokens=24, min_margin=0.01, logprob_tolerance=1e-3
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, or 1 when something failed."""
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description="Check the whole path on a tiny model.")
    parser.add_argument("--report", type=Path, default=Path("gpu-check.txt"), metavar="FILE")
    parser.add_argument("--steps", type=int, default=2000, metavar="N", help="random plans (default: %(default)s)")
    args = parser.parse_args(argv)
    findings = list[Finding]()
    with tempfile.TemporaryDirectory() as directory:
        for finding in check(TARGETS[torch_device()], Path(directory), args.steps):
            print(finding, flush=True)
            findings.append(finding)
    args.report.write_text(as_report(findings), encoding="utf-8")
    print(f"all of it stands in {args.report}")
    return int(any(finding.outcome is Outcome.FAILED for finding in findings))


def check(target: Target, directory: Path, num_steps: int) -> Iterator[Finding]:
    """Build, compare, and let the doctor look."""
    built = attempt("build", partial(_build, target, directory))
    yield built
    if built.outcome is Outcome.OK:
        yield attempt("random plans", partial(_run_random_plans, target, directory, num_steps))
    yield from examine(directory / "engine" if built.outcome is Outcome.OK else None)


def _build(target: Target, directory: Path) -> Iterator[str]:
    checkpoint = make_checkpoint(directory / "checkpoint", "LlamaForCausalLM", MODEL, dtype=target.dtype)
    limits = [word for name, value in LIMITS.items() for word in (f"--{name}", str(value))]
    options = ["--engine", target.engine, "--dtype", target.dtype, *limits]
    status = build_engine(["--model-dir", str(checkpoint), "--output-dir", str(directory / "engine"), *options])
    assert status == 0, f"build-engine ended with status {status}; its words stand above"
    yield f"a Llama of two layers, {target.dtype}, for {target.engine}"


def _run_random_plans(target: Target, directory: Path, num_steps: int) -> Iterator[str]:
    """Raises AssertionError at the first token that is not Hugging Face's, or not as probable."""
    block_bytes = read(directory / "engine").block_bytes
    settings = ExecutorConfig(num_device_blocks=NUM_DEVICE_BLOCKS, host_cache_memory=NUM_HOST_BLOCKS * block_bytes)
    engine = load_engine(ServeConfig(engine=directory / "engine", executor=settings))
    known = references(
        directory / "checkpoint",
        num_prompts=target.num_prompts,
        num_tokens=target.num_tokens,
        block_size=BLOCK_SIZE,
        min_margin=target.min_margin,
    )
    assert known, "no continuation is clear throughout"
    mix = RandomMix(engine, known, seed=1, logprob_tolerance=target.logprob_tolerance)
    mix.run(num_steps)
    copied = sum(counters.num_copied_in_blocks for counters in mix.counters)
    yield f"{mix.num_steps} plans, {mix.num_mixed_steps} of prefill and decode, {copied} blocks swapped in"
    yield f"all tokens of {len(known)} prompts are Hugging Face's"


if __name__ == "__main__":
    raise SystemExit(main())
