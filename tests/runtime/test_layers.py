from pathlib import Path

import pytest

from jetway.runtime.config import (
    ExecutorConfig,
    GatewayConfig,
    SchedulerConfig,
    ServeConfig,
)
from jetway.runtime.errors import ConfigError
from jetway.runtime.layers import resolve
from jetway.runtime.named_config import ClassConfig, TenantConfig
from jetway.runtime.settings import Given, Layer

ENGINE: Layer = {"engine": Given("engines/tiny", "argument")}


def write(directory: Path, text: str) -> Path:
    path = directory / "serve.yaml"
    path.write_text(text)
    return path


def test_nothing_given_is_the_defaults() -> None:
    assert resolve(ENGINE, {}, None).config == ServeConfig(engine=Path("engines/tiny"))


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, "gateway:\n  port: 1\n  grpc_port: 2\n  host: localhost\n")
    environ = {"JETWAY_PORT": "3", "JETWAY_GRPC_PORT": "4"}
    resolved = resolve({**ENGINE, "port": Given("5", "flag --port")}, environ, file)
    assert resolved.config.gateway == GatewayConfig(port=5, grpc_port=4, host="localhost")
    assert [resolved.origins[name] for name in ("port", "grpc_port", "host", "threads")] == [
        "flag --port",
        "environment JETWAY_GRPC_PORT",
        "serve.yaml line 4",
        "default",
    ]


def test_a_file_may_name_every_section_and_the_top_level(tmp_path: Path) -> None:
    text = """
        engine: other
        drain_timeout_s: 5
        executor: {kv_cache_memory: 512MiB, python: null}
        scheduler:
            max_batch_size: 8   # TensorRT-LLM's name
            preemption_mode: off
        gateway:
        classes:
            interactive: {level: 1, itl_objective_s: 0.05}
            standard: {level: 2}
            night work:
                level: 3
                queue_timeout_s: 600
                queue_timeout_action: delay
        tenants:
            acme: {weight: 2}
            "7":
    """
    assert resolve({}, {}, write(tmp_path, text)).config == ServeConfig(
        engine=Path("other"),
        drain_timeout_s=5.0,
        executor=ExecutorConfig(kv_cache_memory=512 << 20),
        scheduler=SchedulerConfig(max_num_seqs=8, preemption_mode="off"),
        classes={
            "interactive": ClassConfig(level=1, itl_objective_s=0.05),
            "standard": ClassConfig(level=2),
            "night work": ClassConfig(level=3, queue_timeout_s=600.0, queue_timeout_action="delay"),
        },
        tenants={"acme": TenantConfig(weight=2.0), "7": TenantConfig()},
    )


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (
            "classes:\n  standard: {level: 1}",
            {"policy": Given("fcfs", "flag --policy")},
            "policy is fcfs, and classes hold standard: give one of the two (flag --policy, serve.yaml line 2)",
        ),
        (
            "classes:\n  gold: {level: 1}\n  iron: {level: 2}",
            {},
            "classes must hold standard, for requests that name no class; they hold gold, iron (serve.yaml line 2)",
        ),
        (
            "gateway: {grpc_port: 8000}",
            {},
            "port and grpc_port must differ; both are 8000 (default, serve.yaml line 1)",
        ),
        (
            "classes:\n  standard:\n    weight: 2",
            {},
            "level of standard in section classes is missing (serve.yaml line 2)",
        ),
        ("classes:\n  standard: {level: 0}", {}, "level must be at least 1, not 0 (serve.yaml line 2)"),
        ("tenants:\n  acme:\n    weight: 0", {}, "weight must be at least 0.001, not 0.0 (serve.yaml line 3)"),
    ],
)
def test_what_does_not_go_together_names_where_it_was_said(
    tmp_path: Path, text: str, flags: Layer, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(ENGINE | flags, {}, write(tmp_path, text))
    assert raised.value.message == message


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert resolve(ENGINE, {}, write(tmp_path, "# nothing\n")).config == ServeConfig(engine=Path("engines/tiny"))


def test_the_environment_has_aliases_and_strangers() -> None:
    environ = {"JETWAY_MAX_NUM_TOKENS": "512", "JETWAY_ENFORCE_EAGER": "true", "JETWAY_REQUIRE": "model", "PORT": "1"}
    assert resolve(ENGINE, environ, None).config.scheduler == SchedulerConfig(
        max_num_batched_tokens=512, mix_prefill=False
    )


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(ENGINE, {"JETWAY_PORT": "tcp://10.0.0.1:80"}, None)
    assert raised.value.message == "port must be a whole number, not 'tcp://10.0.0.1:80' (environment JETWAY_PORT)"


def test_without_an_engine_nothing_can_be_served() -> None:
    with pytest.raises(ConfigError, match="engine is missing: it is the first argument"):
        resolve({}, {}, None)


def test_what_is_printed_reads_back(tmp_path: Path) -> None:
    flags: Layer = {
        "engine": Given("engines/a # b: c\nö", "argument"),
        "model_name": Given("yes", "flag --model-name"),
        "kv_cache_memory": Given("1536MiB", "flag --kv-cache-memory"),
        "preemption_mode": Given("off", "flag --preemption-mode"),
        "watermark": Given("0.05", "flag --watermark"),
        "write_through": Given("true", "flag --write-through"),
    }
    maps = "classes:\n  standard: {level: 1}\n  'null': {level: 2, max_wait_s: 1}\ntenants:\n  'a: b': {weight: 3}\n"
    resolved = resolve(flags, {}, write(tmp_path, maps))
    assert set(resolved.config.classes) == {"standard", "null"}
    assert resolve({}, {}, write(tmp_path, resolved.to_yaml())).config == resolved.config
    assert "  write_through: true  # flag --write-through\n" in resolved.to_yaml()
    assert "tenants:\n  'a: b':\n    weight: 3.0  # serve.yaml line 5\n" in resolved.to_yaml()
    assert "  kv_cache_memory: 1536MiB  # flag --kv-cache-memory\n" in resolved.to_yaml()
    assert "  port: 8000  # default\n" in resolved.to_yaml()
