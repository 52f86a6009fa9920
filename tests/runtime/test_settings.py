import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetway.runtime.errors import ConfigError
from jetway.runtime.settings import ALIASES, SETTINGS, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1KiB", 1024),
        ("512MiB", 536_870_912),
        ("1 GiB", 1_073_741_824),
        ("1.5GiB", 1_610_612_736),
        ("2GB", 2_000_000_000),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1 GIB", "-1", "1e9", "0.3B", "1GiB extra"])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "80", 80),
        ("max_num_seqs", "010", 10),
        ("max_num_seqs", "null", None),
        ("drain_timeout_s", "1e1", 10.0),
        ("preemption_mode", "off", "off"),
        ("kv_cache_memory", "1MiB", 1_048_576),
        ("model_name", "007", "007"),
    ],
)
def test_text_becomes_the_type_of_the_key(name: str, text: str, value: object) -> None:
    assert SETTINGS[name].parse(text, "here") == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("port", "http", "port must be a whole number, not 'http' (here)"),
        ("port", "null", "port must be a whole number, not 'null' (here)"),
        ("watermark", "1%", "watermark must be a number, not '1%' (here)"),
        ("kv_cache_memory", "lots", "kv_cache_memory must be a size such as 4096, 512MiB or 1GiB, not 'lots' (here)"),
        ("max_num_seqs", "0", "max_num_seqs must be at least 1, not 0 (here)"),
        ("log_level", "loud", "log_level must be one of debug, info, warning, error, not 'loud' (here)"),
    ],
)
def test_a_wrong_text_names_key_text_and_origin(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SETTINGS[name].parse(text, "here")
    assert raised.value.message == message


def test_an_alias_names_a_setting_and_hides_none() -> None:
    assert set(ALIASES.values()) <= set(SETTINGS)
    assert not set(ALIASES) & set(SETTINGS)


def test_every_setting_has_a_flag_and_a_help_text() -> None:
    assert SETTINGS["kv_cache_memory"].flag == "--kv-cache-memory"
    assert all(setting.help for setting in SETTINGS.values())
