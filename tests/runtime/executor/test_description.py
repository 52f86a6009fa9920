from importlib.metadata import version
from pathlib import Path

import pytest

from jetway.builder.manifest import Manifest, read
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.description import describe, device_blocks
from jetway.scheduler.plan import EngineDescription
from tests.support.tokenizers import byte_level, write_engine


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return read(write_engine(tmp_path, byte_level()))


def test_a_block_holds_keys_and_values_of_all_layers(manifest: Manifest) -> None:
    assert manifest.block_bytes == 2 * 1 * 1 * 8 * 4 * 32  # K and V, layers, heads, head size, f32, tokens


def test_the_device_pool_is_whole_blocks_unless_a_number_is_given(manifest: Manifest) -> None:
    assert device_blocks(manifest, kv_cache_memory=3 * 2048 + 2047, num_device_blocks=None) == 3
    assert device_blocks(manifest, kv_cache_memory=0, num_device_blocks=7) == 7


def test_a_pool_smaller_than_a_block_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ConfigError, match="kv_cache_memory must hold one block of 2048 bytes, not 2047"):
        device_blocks(manifest, kv_cache_memory=2047, num_device_blocks=None)


def test_the_description_is_the_manifest_and_the_pools(manifest: Manifest) -> None:
    described = describe(manifest, kind="openvino", num_device_blocks=7, num_host_blocks=3, num_stages=2)
    assert described == EngineDescription(
        engine_id="00" * 32,
        kind="openvino",
        version=version("jetway-llm"),
        block_size=32,
        num_device_blocks=7,
        num_host_blocks=3,
        block_bytes=2048,
        max_num_seqs=4,
        max_num_batched_tokens=256,
        max_seq_len=512,
        vocab_size=260,  # the bytes and four special tokens
        capabilities=("copy", "logprobs"),
        num_stages=2,
    )
