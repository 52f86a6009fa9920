"""The CPU engine beside Hugging Face, and what it refuses to load. Further behaviour: test_engine_contract.py."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_model import Resources
from tests.conftest import ROOT
from tests.runtime.executor.driving import Job, generate

STORED = [json.loads(line) for line in (ROOT / "tests/data/greedy_smollm2.jsonl").read_text().splitlines()]
JOBS = [Job(line["prompt_ids"], len(line["output_ids"])) for line in STORED]
OUTPUTS = [line["output_ids"] for line in STORED]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("chunk_tokens", [512, 10])
def test_greedy_tokens_of_32_prompts_at_once_are_hugging_faces(demo_openvino: Engine, chunk_tokens: int) -> None:
    assert generate(demo_openvino, JOBS, chunk_tokens=chunk_tokens) == OUTPUTS


@pytest.mark.timeout(120)
def test_greedy_tokens_one_by_one_are_hugging_faces(demo_openvino: Engine) -> None:
    """An eighth of them: that a batch changes no token is what the test above shows."""
    assert [generate(demo_openvino, [job])[0] for job in JOBS[::8]] == OUTPUTS[::8]


def load(directory: Path, **sizes: int) -> OpenVinoEngine:
    return OpenVinoEngine.load(directory, Resources(**sizes))


def block_bytes_of(num_layers: int, kv_heads: int, head_size: int) -> int:
    """32 tokens of keys and values in f32."""
    return num_layers * 2 * 32 * kv_heads * head_size * 4


def test_kv_cache_memory_becomes_whole_blocks(tiny_engine_directory: Path) -> None:
    block_bytes = block_bytes_of(2, 2, 16)
    engine = load(tiny_engine_directory, kv_cache_memory=10 * block_bytes + 5, num_host_blocks=3)
    description = engine.describe()
    assert (description.num_device_blocks, description.num_host_blocks) == (10, 3)
    assert (description.block_bytes, description.block_size) == (block_bytes, 32)


def test_describes_what_was_built(tiny_engine_directory: Path) -> None:
    description = load(tiny_engine_directory, num_device_blocks=1).describe()
    assert description.kind == "openvino"
    assert (description.max_num_seqs, description.max_num_batched_tokens) == (8, 200)
    assert (description.max_seq_len, description.vocab_size) == (256, 300)
    config = json.loads((tiny_engine_directory / "config.json").read_text())
    assert description.engine_id == config["jetway"]["engine_id"]
    assert load(tiny_engine_directory, num_device_blocks=1).eos_token_ids == {2}


def test_a_pool_smaller_than_a_block_is_refused(tiny_engine_directory: Path) -> None:
    block_bytes = block_bytes_of(2, 2, 16)
    with pytest.raises(ConfigError) as error:
        load(tiny_engine_directory, kv_cache_memory=block_bytes - 1)
    assert error.value.message == f"kv_cache_memory must hold one block of {block_bytes} bytes, not {block_bytes - 1}"


def test_pools_larger_than_the_memory_are_refused(tiny_engine_directory: Path) -> None:
    with pytest.raises(ConfigError, match="3 host blocks of 16384 bytes do not fit in memory; lower kv_cache_memory"):
        load(tiny_engine_directory, kv_cache_memory=1 << 60, num_host_blocks=3)


def test_a_directory_without_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"the engine in {tmp_path} cannot be loaded: .*config.json: does not exist"):
        load(tmp_path, num_device_blocks=1)


def test_a_broken_model_file_is_refused(tiny_engine_directory: Path, tmp_path: Path) -> None:
    """As many bytes as the manifest says, but not the right ones."""
    directory = Path(shutil.copytree(tiny_engine_directory, tmp_path / "engine"))
    model = directory / "model.xml"
    model.write_bytes(b"<" * model.stat().st_size)
    with pytest.raises(ConfigError, match=f"the engine in {directory} cannot be loaded"):
        load(directory, num_device_blocks=1)


def test_the_executor_imports_neither_torch_nor_transformers() -> None:
    """Their import costs seconds at every start."""
    code = (
        "import sys, jetway.runtime.executor.openvino, jetway.runtime.executor.server\n"
        "print(*sorted({'torch', 'transformers'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
