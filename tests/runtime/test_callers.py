"""Keys and classes, from a file to who may call."""

import hashlib
from pathlib import Path

import pytest

from jetway.runtime.callers import make_access
from jetway.runtime.config import ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.gateway.placement import Asked, Caller
from jetway.runtime.layers import Resolved, resolve
from jetway.runtime.named_config import KeyConfig
from jetway.runtime.settings import Given

HASH = hashlib.sha256(b"sk-acme").hexdigest()


def resolved(directory: Path, text: str) -> Resolved:
    file = directory / "serve.yaml"
    file.write_text(text)
    return resolve({"engine": Given("e", "argument 1")}, {}, file)


def config(directory: Path, text: str) -> ServeConfig:
    return resolved(directory, text).config


KEYS = f"""\
keys:
  acme:
    sha256: {HASH}
    tenant: acme-corp
    classes: [standard, batch]
    default_class: batch
  open:
    sha256: {hashlib.sha256(b"sk-open").hexdigest()}
"""


def test_keys_of_a_file_say_who_calls(tmp_path: Path) -> None:
    access = make_access(config(tmp_path, KEYS))

    acme = Caller(tenant="acme-corp", default_class="batch", allowed_classes=frozenset({"standard", "batch"}))
    assert access.keys.caller("Bearer sk-acme", None) == acme
    assert access.keys.caller("Bearer sk-open", None) == Caller(tenant="open")


def test_printed_keys_read_back_the_same(tmp_path: Path) -> None:
    first = resolved(tmp_path, KEYS)

    assert resolved(tmp_path, first.to_yaml()).config.keys == first.config.keys
    assert first.config.keys["acme"] == KeyConfig(
        sha256=HASH, tenant="acme-corp", classes=("standard", "batch"), default_class="batch"
    )


def test_classes_are_those_of_the_policy_or_of_the_file(tmp_path: Path) -> None:
    served = {"interactive": 1, "standard": 2, "batch": 3}
    for text, levels in [
        ("", served),
        ("scheduler: {policy: weighted}", dict.fromkeys(served, 1)),
        ("classes: {standard: {level: 1}, gold: {level: 2}}", {"standard": 1, "gold": 2}),
    ]:
        assert make_access(config(tmp_path, text)).placer.levels == levels


def test_a_class_has_its_deadline_for_calls_that_name_none(tmp_path: Path) -> None:
    text = "classes: {standard: {level: 1}, gold: {level: 2, default_deadline_s: 2.5}}"
    placer = make_access(config(tmp_path, text)).placer
    deadlines_s = {name: placer.place(Asked(header=name), Caller()).deadline_s for name in ("standard", "gold")}
    assert deadlines_s == {"standard": None, "gold": 2.5}


@pytest.mark.parametrize("name", ["interactive", "standard", "batch"])
def test_to_fcfs_every_default_class_may_be_named(tmp_path: Path, name: str) -> None:
    access = make_access(config(tmp_path, "scheduler: {policy: fcfs}"))
    assert access.placer.place(Asked(header=name), Caller()).service_class == name


def test_the_dialect_is_that_of_the_settings(tmp_path: Path) -> None:
    placer = make_access(config(tmp_path, "gateway: {priority_dialect: trtllm}")).placer
    assert placer.place(Asked(priority=0.75), Caller()).service_class == "interactive"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("sha256: sk-acme", "sha256 of key acme must be 64 hexadecimal digits, not 7 characters"),
        (
            f"sha256: {HASH}, classes: [standard, gold]",
            "key acme names class 'gold', which is not served; classes are interactive, standard, batch",
        ),
        (f"sha256: {HASH}, default_class: gold", "key acme names class 'gold', which is not served"),
        (f"sha256: {HASH}, classes: [batch]", "default_class of key acme is standard, its classes are batch"),
        (f"sha256: {HASH}, classes: {{batch: 1}}", "classes must be a single value"),
        (f"sha256: {HASH}, classes: []", "classes must name at least one (serve.yaml line 2)"),
        (f"sha256: {HASH}, classes: ['']", "classes must name at least one (serve.yaml line 2)"),
        (f"sha256: {HASH}, classes: [null]", "classes must name at least one (serve.yaml line 2)"),
        (f"sha256: [{HASH}]", "sha256 must be a single value"),
        ("tenant: a", "sha256 of acme in section keys is missing"),
    ],
)
def test_a_key_that_cannot_work_is_a_config_error(tmp_path: Path, fields: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_access(config(tmp_path, f"keys:\n  acme: {{{fields}}}"))
    assert caught.value.message.startswith(message)


def test_two_keys_of_one_secret_are_a_config_error(tmp_path: Path) -> None:
    keys = f"keys:\n  acme: {{sha256: {HASH}}}\n  other: {{sha256: {HASH.upper()}, default_class: batch}}"
    with pytest.raises(ConfigError) as caught:
        make_access(config(tmp_path, keys))
    assert caught.value.message == "keys acme and other have the same sha256"
