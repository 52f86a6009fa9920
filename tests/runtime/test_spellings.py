import pytest

from jetway.runtime.settings import MAP_SETTINGS, SETTINGS
from jetway.runtime.spellings import ALIASES, INSTEAD, OPPOSITES, instead, said_as

KNOWN = {*SETTINGS, *(key for settings in MAP_SETTINGS.values() for key in settings)}


def test_an_alias_names_a_setting_and_hides_none() -> None:
    assert set(ALIASES.values()) <= set(SETTINGS)
    assert not {*ALIASES, *INSTEAD} & KNOWN
    assert set(OPPOSITES) <= set(ALIASES)


def test_advice_names_settings_that_exist() -> None:
    for advice in INSTEAD.values():
        words = [word.strip(",;") for word in advice.split()]
        assert all(word in KNOWN | {"CUDA"} for word in words if "_" in word), advice


@pytest.mark.parametrize(
    ("spelling", "text", "meaning"),
    [
        ("enforce_eager", "true", "false"),
        ("enforce_eager", "False", "true"),
        ("enforce_eager", "perhaps", "perhaps"),
        ("mix_prefill", "true", "true"),
        ("max_batch_size", "8", "8"),
    ],
)
def test_an_opposite_says_the_contrary(spelling: str, text: str, meaning: str) -> None:
    assert said_as(spelling, text) == meaning


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("scheduler_delay_factor", ": use max_waiting_time_s"),
        ("--swap-space", ": vLLM's was in GiB; use host_cache_memory, for example 4GiB"),
        ("watermrk", "; did you mean watermark?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_word_is_answered(word: str, answer: str) -> None:
    assert instead(word, SETTINGS) == answer
