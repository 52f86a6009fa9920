import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetway.runtime.errors import ConfigError
from jetway.runtime.settings import MAP_SETTINGS, SETTINGS, Given, Layer, add, format_bytes, parse_bytes


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
        ("write_through", "true", True),
        ("write_through", "False", False),
        ("policy", "null", None),
        ("policy", "fcfs", "fcfs"),
    ],
)
def test_text_becomes_the_type_of_the_key(name: str, text: str, value: object) -> None:
    assert SETTINGS[name].parse(Given(text, "here")) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("port", "http", "port must be a whole number, not 'http' (here)"),
        ("port", "null", "port must be a whole number, not 'null' (here)"),
        ("watermark", "1%", "watermark must be a number, not '1%' (here)"),
        ("kv_cache_memory", "lots", "kv_cache_memory must be a size such as 4096, 512MiB or 1GiB, not 'lots' (here)"),
        ("max_num_seqs", "0", "max_num_seqs must be at least 1, not 0 (here)"),
        ("write_through", "yes", "write_through must be true or false, not 'yes' (here)"),
        ("policy", "srtict", "policy must be one of strict, weighted, fcfs, not 'srtict' (here)"),
        ("log_level", "loud", "log_level must be one of debug, info, warning, error, not 'loud' (here)"),
    ],
)
def test_a_wrong_text_names_key_text_and_origin(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SETTINGS[name].parse(Given(text, "here"))
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("write_through", True, "true"),
        ("policy", None, "null"),
        ("host_cache_memory", 3 << 29, "1536MiB"),
        ("watermark", 0.01, "0.01"),
    ],
)
def test_a_value_becomes_text_that_reads_back(name: str, value: object, text: str) -> None:
    assert SETTINGS[name].format(value) == text
    assert SETTINGS[name].parse(Given(text, "here")) == value


def test_every_setting_has_flags_and_a_help_text() -> None:
    assert SETTINGS["kv_cache_memory"].flags == ["--kv-cache-memory"]
    assert SETTINGS["max_num_seqs"].flags == ["--max-num-seqs", "--max-batch-size"]
    assert SETTINGS["mix_prefill"].flags == [
        "--mix-prefill",
        "--no-mix-prefill",
        "--enforce-eager",
        "--no-enforce-eager",
    ]
    in_maps = [setting for settings in MAP_SETTINGS.values() for setting in settings.values()]
    assert all(setting.help for setting in [*SETTINGS.values(), *in_maps])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("log_level", "debug, info, warning or error"),
        ("write_through", "true or false"),
        ("port", "a whole number, 0 to 65535"),
        ("max_num_seqs", "a whole number, at least 1"),
        ("max_request_bytes", "a size such as 4096, 512MiB or 1GiB, 1 to 16MiB"),
        ("host", "text"),
    ],
)
def test_what_a_setting_takes_can_be_said(name: str, words: str) -> None:
    assert SETTINGS[name].takes == words


def test_only_the_engine_and_a_class_level_have_no_default() -> None:
    assert [name for name, setting in SETTINGS.items() if setting.required] == ["engine"]
    assert [name for name, setting in MAP_SETTINGS["classes"].items() if setting.required] == ["level"]


def test_an_alias_is_its_setting_and_an_opposite_is_turned_round() -> None:
    layer: Layer = {}
    add(layer, "max_batch_size", Given("8", "here"))
    add(layer, "enforce_eager", Given("true", "there"))
    assert layer == {"max_num_seqs": Given("8", "here"), "mix_prefill": Given("false", "there")}
    with pytest.raises(ConfigError) as raised:
        add(layer, "mix_prefill", Given("true", "elsewhere"))
    assert raised.value.message == "mix_prefill is given twice (there and elsewhere)"
