"""Memory that a GPU's pool is not in is not counted."""

from pathlib import Path
from typing import Any

import pytest

from jetway.runtime.config import ExecutorConfig, SchedulerConfig, ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.preflight import check
from tests.support.trt_manifest import make_document, write_document

ONE_RANK = {
    "pretrained_config.mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
    "jetway.files": {"rank0.engine": 4},
}


def config_of(directory: Path, **settings: object) -> ServeConfig:
    return ServeConfig(engine=directory, executor=ExecutorConfig(**settings))  # type: ignore[arg-type]


def test_a_pool_on_the_gpu_needs_no_main_memory(tmp_path: Path) -> None:
    write_document(make_document(ONE_RANK), tmp_path)
    check(config_of(tmp_path, num_device_blocks=2**30, host_cache_memory=0))
    with pytest.raises(ConfigError, match="0 device and 268435456 host blocks need"):
        check(config_of(tmp_path, num_device_blocks=2**30, host_cache_memory=2**50))
    with pytest.raises(ConfigError, match="1073741824 device and 0 host blocks need"):
        check(config_of(tmp_path, backend="simulated", num_device_blocks=2**30, host_cache_memory=0))


@pytest.mark.parametrize(("pp_size", "overlap"), [(1, "2"), (4, "5")])
def test_plans_ahead_that_there_are_no_stages_for_are_refused_before_anything_loads(
    tmp_path: Path, pp_size: int, overlap: Any
) -> None:
    write_document(make_document(ONE_RANK), tmp_path)
    executor = ExecutorConfig(backend="simulated", pp_size=pp_size)
    config = ServeConfig(engine=tmp_path, executor=executor, scheduler=SchedulerConfig(overlap=overlap))
    with pytest.raises(ConfigError, match=f"overlap is {overlap}; an engine of {pp_size} stages has use for {pp_size}"):
        check(config)


def test_every_rank_has_a_host_pool(tmp_path: Path) -> None:
    write_document(make_document(), tmp_path)
    check(config_of(tmp_path, host_cache_memory=2**22))
    with pytest.raises(ConfigError, match="0 device and 536870912 host blocks in each of 2 ranks need 2097152.0 GiB"):
        check(config_of(tmp_path, host_cache_memory=2**50))
