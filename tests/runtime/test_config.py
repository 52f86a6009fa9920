import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from jetway.runtime.config import ExecutorConfig, GatewayConfig, SchedulerConfig, ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.named_config import ClassConfig, KeyConfig


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
    assert (config.scheduler.preemption_mode, config.scheduler.policy, config.classes) == ("auto", None, {})


def test_by_default_the_host_pool_takes_a_whole_device_pool() -> None:
    config = ExecutorConfig()
    assert (config.main_memory_pool_bytes, config.host_cache_memory) == (2**30, 2**30)


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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example", ""])
def test_a_host_that_others_reach_needs_keys_or_client_certificates_or_a_word(host: str) -> None:
    def serve(**gateway: Any) -> ServeConfig:
        return ServeConfig(engine=Path("e"), gateway=GatewayConfig(host=host, **gateway), keys=keys)

    keys: dict[str, KeyConfig] = {}
    with pytest.raises(ConfigError, match="nothing says who may call: give keys or tls_client_ca, or say insecure"):
        serve()
    assert serve(insecure=True).gateway.host == host
    serve(tls_certificate="c", tls_key="k", tls_client_ca="ca")
    keys = {"acme": KeyConfig(sha256="00" * 32)}
    serve()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert ServeConfig(engine=Path("e"), gateway=GatewayConfig(host=host)).gateway.is_loopback


def test_the_files_of_tls_go_together() -> None:
    for alone in ("tls_certificate", "tls_key"):
        with pytest.raises(ConfigError, match="tls_certificate and tls_key go together; one is missing"):
            GatewayConfig(**{alone: "x.pem"})  # type: ignore[arg-type]  # a path
    with pytest.raises(ConfigError, match="tls_client_ca needs tls_certificate and tls_key"):
        GatewayConfig(tls_client_ca="ca.pem")


def test_an_optional_choice_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="policy must be one of strict, weighted, fcfs, not 'lifo'"):
        SchedulerConfig(policy="lifo")  # type: ignore[arg-type]  # the point of the test


def test_classes_and_a_policy_exclude_each_other() -> None:
    classes = {"standard": ClassConfig(level=1)}
    assert ServeConfig(engine=Path("engine"), classes=classes).classes == classes
    with pytest.raises(ConfigError, match="policy is strict, and classes hold standard: give one of the two"):
        ServeConfig(engine=Path("engine"), classes=classes, scheduler=SchedulerConfig(policy="strict"))


def test_swap_without_a_host_pool_is_refused() -> None:
    """It would recompute in silence."""
    with pytest.raises(ConfigError, match="there is nowhere to swap to"):
        ServeConfig(
            engine=Path("e"),
            executor=ExecutorConfig(host_cache_memory=0),
            scheduler=SchedulerConfig(preemption_mode="swap"),
        )


def test_writing_through_to_no_host_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is nowhere to write to"):
        ServeConfig(
            engine=Path("e"),
            executor=ExecutorConfig(host_cache_memory=0),
            scheduler=SchedulerConfig(write_through=True),
        )


def test_classes_that_age_need_a_lane() -> None:
    """The default classes have one that ages: without a lane it just does not."""
    no_lane = SchedulerConfig(aged_slots=0)
    classes = {"standard": ClassConfig(level=1, max_wait_s=5.0)}
    with pytest.raises(ConfigError, match="aged_slots is 0, and a class has max_wait_s"):
        ServeConfig(engine=Path("e"), scheduler=no_lane, classes=classes)
    assert ServeConfig(engine=Path("e"), scheduler=no_lane).scheduler is no_lane


def test_what_names_no_class_needs_one() -> None:
    with pytest.raises(ConfigError, match="classes must hold standard, for requests that name no class"):
        ServeConfig(engine=Path("engine"), classes={"gold": ClassConfig(level=1)})
