from pathlib import Path

import pytest

from jetway.runtime.config import ExecutorConfig, GatewayConfig, SchedulerConfig, ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.layers import Given, Layer, resolve

ENGINE: Layer = {"engine": Given("engines/tiny", "argument")}


def write(directory: Path, text: str) -> Path:
    path = directory / "serve.yaml"
    path.write_text(text)
    return path


def test_nothing_given_is_the_defaults() -> None:
    assert resolve(ENGINE, {}, None).config == ServeConfig(engine=Path("engines/tiny"))


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, "gateway:\n  port: 1\n  grpc_port: 2\n  host: file\n")
    environ = {"JETWAY_PORT": "3", "JETWAY_GRPC_PORT": "4"}
    resolved = resolve({**ENGINE, "port": Given("5", "flag --port")}, environ, file)
    assert resolved.config.gateway == GatewayConfig(port=5, grpc_port=4, host="file")
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
    """
    assert resolve({}, {}, write(tmp_path, text)).config == ServeConfig(
        engine=Path("other"),
        drain_timeout_s=5.0,
        executor=ExecutorConfig(kv_cache_memory=512 << 20),
        scheduler=SchedulerConfig(max_num_seqs=8, preemption_mode="off"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gateway:\n  prot: 80", "unknown key 'prot' (serve.yaml line 2); did you mean port?"),
        ("gatway:\n  port: 80", "unknown key 'gatway' (serve.yaml line 1); did you mean gateway?"),
        ("zzz: 1", "unknown key 'zzz' (serve.yaml line 1)"),
        ("port: 80", "port belongs in section gateway (serve.yaml line 1)"),
        ("executor:\n  port: 80", "port belongs in section gateway (serve.yaml line 2)"),
        ("gateway:\n  model_name: x", "model_name belongs at the top level (serve.yaml line 2)"),
        ("gateway:\n  port: [80]", "port must be a single value (serve.yaml line 2)"),
        ("gateway: 80", "serve.yaml, section gateway must hold `key: value` lines"),
        ("- port", "serve.yaml must hold `key: value` lines"),
        ("[1]: 2", "serve.yaml line 1: a key must be a plain word"),
        ("gateway:\n  port: http", "port must be a whole number, not 'http' (serve.yaml line 2)"),
        (
            "scheduler:\n  max_num_seqs: 1\n  max_batch_size: 2",
            "max_num_seqs is given twice (serve.yaml line 2 and serve.yaml line 3)",
        ),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(ENGINE, {}, write(tmp_path, text))
    assert raised.value.message == message


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- x", "key: *nowhere"])
def test_a_file_that_is_no_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read configuration file .*serve.yaml: [^\n]+$"):
        resolve(ENGINE, {}, write(tmp_path, text))


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read configuration file .*absent.yaml"):
        resolve(ENGINE, {}, tmp_path / "absent.yaml")


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert resolve(ENGINE, {}, write(tmp_path, "# nothing\n")).config == ServeConfig(engine=Path("engines/tiny"))


def test_the_environment_has_aliases_and_strangers() -> None:
    environ = {"JETWAY_MAX_NUM_TOKENS": "512", "JETWAY_REQUIRE": "model", "PORT": "1"}
    assert resolve(ENGINE, environ, None).config.scheduler == SchedulerConfig(max_num_batched_tokens=512)


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
    }
    resolved = resolve(flags, {}, None)
    assert resolve({}, {}, write(tmp_path, resolved.to_yaml())).config == resolved.config
    assert "  kv_cache_memory: 1536MiB  # flag --kv-cache-memory\n" in resolved.to_yaml()
    assert "  port: 8000  # default\n" in resolved.to_yaml()
