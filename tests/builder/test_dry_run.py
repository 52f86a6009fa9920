"""What a dry run says, in numbers that are counted by hand here."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jetway.builder import disk, dry_run, plan
from jetway.builder.spec import BuildSpec
from jetway.runtime.config import ExecutorConfig
from tests.builder.tiny_gguf import write_gguf


def make_spec(checkpoint: Path) -> BuildSpec:
    return BuildSpec(model_dir=checkpoint, output_dir=checkpoint.parent / "none" / "engine")


@pytest.fixture(autouse=True)
def _disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda directory: 5_000_000)


def test_describe(tiny_checkpoint: Path) -> None:
    """Parameters: 2 x 300 x 64 in both embeddings; each layer 2 x 4096 (q, o), 2 x 2048 (k, v), 3 x 8192, 2 x 64; 64."""
    num_parameters = 2 * 300 * 64 + 2 * (2 * 4096 + 2 * 2048 + 3 * 8192 + 2 * 64) + 64
    planned = plan.make(make_spec(tiny_checkpoint))
    assert planned.num_parameters == num_parameters == 112_448
    assert list(dry_run.describe(planned, 1 << 20)) == [
        f"model     LlamaForCausalLM, 0.1 M parameters, {tiny_checkpoint / 'config.json'}",
        "engine    openvino, weights float32, KV cache f32",
        "steps     up to 64 sequences and 512 tokens",
        "lengths   up to 256 tokens",
        f"disk      about 0.4 MB of 5.0 MB free at {planned.spec.output_dir}",
        "KV cache  512 bytes a token, 16,384 a block of 32 tokens",
        "pool      1,048,576 bytes hold 64 blocks, 2,048 tokens:",
        "               8 sequences of 256 tokens",
    ]


def test_describe_lossy(tiny_checkpoint: Path) -> None:
    """A block of a u8 cache has 4 x (40 x 16 + 32 x 24) bytes."""
    spec = replace(make_spec(tiny_checkpoint), quantization="int8", kv_cache_dtype="u8", max_seq_len=100)
    lines = list(dry_run.describe(plan.make(spec), 1 << 20))
    assert lines[1] == "engine    openvino, weights int8, KV cache u8"
    assert lines[4].startswith("disk      about 0.1 MB of")
    assert lines[5:] == [
        "KV cache  176 bytes a token, 5,632 a block of 32 tokens",
        "pool      1,048,576 bytes hold 186 blocks, 5,952 tokens:",
        "              46 sequences of 100 tokens",
    ]


def test_lengths(tiny_checkpoint: Path) -> None:
    planned = replace(plan.make(make_spec(tiny_checkpoint)), max_seq_len=10_000)
    assert [line.split(" of ")[1] for line in list(dry_run.describe(planned, 1 << 30))[7:]] == [
        "512 tokens",
        "2,048 tokens",
        "8,192 tokens",
        "10,000 tokens",
    ]


def test_gguf(tiny_checkpoint: Path, tmp_path: Path) -> None:
    planned = plan.make(make_spec(write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint)))
    assert planned.num_parameters == 112_448
    assert planned.block_bytes == 16_384


def test_default_pool_is_the_executors() -> None:
    assert ExecutorConfig().main_memory_pool_bytes == dry_run.POOL_BYTES


def test_loads_none_of_the_heavy_packages(tiny_checkpoint: Path) -> None:
    code = (
        "import sys; from jetway.builder.cli import main; "
        f"main(['--model-dir', {str(tiny_checkpoint)!r}, '--output-dir', 'none', '--dry-run']); "
        "print({'torch', 'transformers', 'openvino'} & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "set()"
