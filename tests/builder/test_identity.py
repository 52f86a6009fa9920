"""Equal ids mean equal engines, and equal conversions."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder import identity
from jetway.builder.spec import BuildSpec

DIGESTS = {"config.json": "aa", "tokenizer.json": "bb", "model.safetensors": "cc"}


def make_spec(**options: Any) -> BuildSpec:
    return BuildSpec(model_dir=Path("model"), output_dir=Path("engine"), **options)


@pytest.mark.parametrize(
    ("digests", "options", "same_engine", "same_conversion"),
    [
        ({}, {}, True, True),
        ({}, {"max_batch_size": 8, "max_num_tokens": 100, "max_seq_len": 64}, True, True),
        ({}, {"kv_cache_dtype": "u8"}, False, True),
        ({"tokenizer.json": "dd"}, {}, False, True),
        ({"config.json": "dd"}, {}, False, False),
        ({"model.safetensors": "dd"}, {}, False, False),
    ],
)
def test_ids(digests: dict[str, str], options: dict[str, Any], same_engine: bool, same_conversion: bool) -> None:
    spec = make_spec(**options)
    assert (identity.engine_id(spec, DIGESTS | digests) == identity.engine_id(make_spec(), DIGESTS)) == same_engine
    conversion = identity.conversion_id(make_spec(), DIGESTS)
    assert (identity.conversion_id(spec, DIGESTS | digests) == conversion) == same_conversion
    assert len(bytes.fromhex(conversion)) == 32


def test_quantization_changes_both(nncf: None) -> None:
    int8 = make_spec(quantization="int8")
    assert identity.engine_id(int8, DIGESTS) != identity.engine_id(make_spec(), DIGESTS)
    assert identity.conversion_id(int8, DIGESTS) != identity.conversion_id(make_spec(), DIGESTS)


def test_another_package_converts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity.conversion_id(make_spec(), DIGESTS)
    monkeypatch.setattr(identity, "version", lambda name: "another")
    assert identity.conversion_id(make_spec(), DIGESTS) != before
