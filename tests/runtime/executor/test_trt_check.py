"""TensorRT engines that cannot be served here are refused by file, field, value and remedy, before they are loaded."""

from dataclasses import replace
from pathlib import Path

import pytest

from jetway.builder.manifest import read
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.trt_check import Surroundings, read_engine
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_rank import RankPart
from tests.support.tokenizers import byte_level, write_engine
from tests.support.trt_manifest import make_document, pipelined, write_document

HERE = Surroundings(tensorrt_llm_version="1.2.1", tensorrt_version="10.14.1.48", compute_capability="9.0", num_ranks=2)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return write_document(make_document(), tmp_path)


def test_what_can_be_served_is_read_with_the_layout_of_its_pool(engine: Path) -> None:
    manifest = read_engine(engine, HERE)
    assert manifest.tensorrt is not None and manifest.max_seq_len == 8192
    layout = KvLayout.of(manifest, RankPart.of(manifest, 1))
    assert layout == KvLayout(
        num_layers=32, num_kv_heads=4, tokens_per_block=32, head_size=128, item_bytes=2, max_seq_len=8192
    )
    assert layout.block_bytes == manifest.block_bytes == 2 * 2**20


def test_a_quantized_cache_has_one_byte_a_number_and_few_heads_are_doubled(engine: Path) -> None:
    manifest = replace(read_engine(engine, HERE), kv_cache_dtype="fp8", num_key_value_heads=1)
    assert manifest.tensorrt is not None
    layout = KvLayout.of(manifest, RankPart.of(manifest, 1))
    assert (layout.item_bytes, layout.num_kv_heads) == (1, 1)


def test_ranks_count_through_a_stage_first_and_uneven_stages_begin_with_more_layers(tmp_path: Path) -> None:
    """5 layers in 3 stages of 2 ranks; blocks are of one stage, and their number is the same in all."""
    changes = pipelined(3) | {"pretrained_config.num_hidden_layers": 5}
    manifest = read(write_document(make_document(changes), tmp_path))
    parts = [RankPart.of(manifest, rank) for rank in range(6)]
    assert [part.num_layers for part in parts] == [2, 2, 2, 2, 1, 1]
    assert [part.is_first_stage for part in parts] == [True] * 2 + [False] * 4
    assert [part.is_last_stage for part in parts] == [False] * 4 + [True] * 2
    assert {part.first_rank_of_last_stage for part in parts} == {4}
    sizes = [KvLayout.of(manifest, part).block_bytes for part in parts]
    assert sizes[0] == 2 * sizes[5] == manifest.block_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "1.1.0"}, "version is '1.1.0', but here is '1.2.1'. Build it again, for what is here."),
        (
            {"jetway.built_with.tensorrt": "10.13.3.9"},
            "jetway.built_with.tensorrt is '10.13.3.9', but here is '10.14.1.48'. Build it again, for what is here.",
        ),
        (
            {"jetway.compute_capability": "8.0"},
            "jetway.compute_capability is '8.0', but here is '9.0'. Build it again, for what is here.",
        ),
        (
            {"pretrained_config.mapping.tp_size": 1, "pretrained_config.mapping.world_size": 1},
            (
                "pretrained_config.mapping means 1 ranks (tp_size 1 and pp_size 1), and 2 run it. "
                "`jetway serve` starts them all, by executor.mpirun."
            ),
        ),
        (
            pipelined(2),
            (
                "pretrained_config.mapping means 4 ranks (tp_size 2 and pp_size 2), and 2 run it. "
                "`jetway serve` starts them all, by executor.mpirun."
            ),
        ),
        # One of what the manifest's reader refuses; tests/builder has them all.
        (
            {"build_config.plugin_config.use_paged_context_fmha": False},
            (
                "build_config.plugin_config.use_paged_context_fmha is False; without it a chunk of a prompt would not see "
                "those before it. Build the engine with build-engine."
            ),
        ),
    ],
)
def test_refused_by_field(engine: Path, changes: dict[str, object], message: str) -> None:
    write_document(make_document(changes), engine)
    with pytest.raises(ConfigError) as refused:
        read_engine(engine, HERE)
    assert str(refused.value) == f"{engine / 'config.json'}: {message}"


def test_a_rank_that_is_listed_must_be_there(engine: Path) -> None:
    (engine / "rank1.engine").unlink()
    with pytest.raises(ConfigError, match=r"rank1.engine: does not exist, but config.json lists it. Copy the whole"):
        read_engine(engine, HERE)


def test_an_engine_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config.json: jetway.engine is 'openvino', not 'tensorrt'"):
        read_engine(write_engine(tmp_path, byte_level()), HERE)
