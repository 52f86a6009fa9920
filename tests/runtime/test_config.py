import dataclasses
import math
from pathlib import Path

import pytest

from jetway.runtime.config import ExecutorConfig, GatewayConfig, SchedulerConfig, ServeConfig
from jetway.runtime.errors import ConfigError


def test_leaf_names_are_unique_so_that_each_can_be_a_flag() -> None:
    names = [
        field.name
        for section in (ServeConfig, ExecutorConfig, SchedulerConfig, GatewayConfig)
        for field in dataclasses.fields(section)
    ]
    assert len(names) == len(set(names))


def test_defaults_are_valid_and_bind_to_loopback() -> None:
    config = ServeConfig(engine=Path("engine"))
    assert config.gateway.host == "127.0.0.1"
    assert (config.executor.kv_cache_memory, config.scheduler.preemption_mode) == (2**30, "recompute")


@pytest.mark.parametrize(
    ("port", "message"),
    [(-1, "port must be at least 0, not -1"), (65_536, "port must be at most 65535, not 65536")],
)
def test_a_value_out_of_range_names_limit_and_value(port: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GatewayConfig(port=port)


def test_nan_is_in_no_range() -> None:
    with pytest.raises(ConfigError, match="watermark must be at least 0.0, not nan"):
        SchedulerConfig(watermark=math.nan)


def test_a_value_outside_its_choices_names_them() -> None:
    with pytest.raises(ConfigError, match="backend must be one of auto, simulated, not 'cuda'"):
        ExecutorConfig(backend="cuda")  # type: ignore[arg-type]  # the point of the test


def test_the_two_ports_differ_unless_both_are_any() -> None:
    with pytest.raises(ConfigError, match="port and grpc_port must differ; both are 8001"):
        GatewayConfig(port=8001)
    assert GatewayConfig(port=0, grpc_port=0).port == 0
