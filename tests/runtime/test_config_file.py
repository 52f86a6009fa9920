from pathlib import Path

import pytest

from jetway.runtime.config_file import Entry, FileLayer, read_config_file
from jetway.runtime.errors import ConfigError
from jetway.runtime.settings import Given


def write(directory: Path, text: str) -> Path:
    path = directory / "serve.yaml"
    path.write_text(text)
    return path


def test_every_value_keeps_its_line(tmp_path: Path) -> None:
    text = "log_level: debug\nscheduler:\n  enforce_eager: true\nclasses:\n  standard:\n    level: 1\ntenants: null\n"
    assert read_config_file(write(tmp_path, text)) == FileLayer(
        settings={
            "log_level": Given("debug", "serve.yaml line 1"),
            "mix_prefill": Given("false", "serve.yaml line 3"),
        },
        maps={
            "classes": {"standard": Entry("serve.yaml line 5", {"level": Given("1", "serve.yaml line 6")})},
            "tenants": {},
            "keys": {},
        },
    )


@pytest.mark.parametrize("text", ["", "# nothing", "gateway:\nclasses:"])
def test_a_file_may_say_nothing(tmp_path: Path, text: str) -> None:
    assert read_config_file(write(tmp_path, text)) == FileLayer()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gateway:\n  prot: 80", "unknown key 'prot' (serve.yaml line 2); did you mean port?"),
        ("gatway:\n  port: 80", "unknown key 'gatway' (serve.yaml line 1); did you mean gateway?"),
        ("class:\n  standard:", "unknown key 'class' (serve.yaml line 1); did you mean classes?"),
        ("zzz: 1", "unknown key 'zzz' (serve.yaml line 1)"),
        (
            "scheduler:\n  swap_space: 4",
            "unknown key 'swap_space' (serve.yaml line 2): vLLM's was in GiB; use host_cache_memory, for example 4GiB",
        ),
        ("classes:\n  batch: {levl: 3}", "unknown key 'levl' (serve.yaml line 2); did you mean level?"),
        ("port: 80", "port belongs in section gateway (serve.yaml line 1)"),
        ("executor:\n  port: 80", "port belongs in section gateway (serve.yaml line 2)"),
        ("gateway:\n  model_name: x", "model_name belongs at the top level (serve.yaml line 2)"),
        ("classes:\n  batch:\n    policy: x", "policy belongs in section scheduler (serve.yaml line 3)"),
        (
            "scheduler:\n  max_queued_requests: 1",
            "max_queued_requests belongs under a name in section classes (serve.yaml line 2)",
        ),
        ("tenants:\n  acme:\n    level: 1", "level belongs under a name in section classes (serve.yaml line 3)"),
        ("gateway:\n  port: [80]", "port must be a single value (serve.yaml line 2)"),
        ("gateway: 80", "serve.yaml, section gateway must hold `key: value` lines"),
        ("classes: strict", "serve.yaml, section classes must hold `key: value` lines"),
        ("tenants:\n  acme: 2", "serve.yaml, acme in section tenants must hold `key: value` lines"),
        ("- port", "serve.yaml must hold `key: value` lines"),
        ("[1]: 2", "serve.yaml line 1: a key must be a plain word"),
        ("classes:\n  '': {level: 1}", "serve.yaml line 2: a name in section classes must not be empty"),
        (
            "scheduler:\n  max_num_seqs: 1\n  max_batch_size: 2",
            "max_num_seqs is given twice (serve.yaml line 2 and serve.yaml line 3)",
        ),
        (
            "classes:\n  batch: {level: 1}\n  batch: {level: 2}",
            "batch is there twice in section classes (serve.yaml line 2 and serve.yaml line 3)",
        ),
        (
            "tenants: {a: {weight: 1}}\ntenants: {b: {weight: 2}}",
            "section tenants is there twice (serve.yaml line 1 and serve.yaml line 2)",
        ),
        (
            "gateway: {port: 1}\ngateway: {grpc_port: 2}",
            "section gateway is there twice (serve.yaml line 1 and serve.yaml line 2)",
        ),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_config_file(write(tmp_path, text))
    assert raised.value.message == message


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t- x", "key: *nowhere"])
def test_a_file_that_is_no_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read configuration file .*serve.yaml: [^\n]+$"):
        read_config_file(write(tmp_path, text))


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read configuration file .*absent.yaml"):
        read_config_file(tmp_path / "absent.yaml")
