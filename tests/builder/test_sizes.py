"""Sizes as people write them."""

import pytest

from jetway.builder.errors import OptionError
from jetway.builder.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("4096", 4096), ("512MiB", 512 << 20), ("2 GiB", 2 << 30), ("1TiB", 1 << 40)]
)
def test_parse_bytes(text: str, num_bytes: int) -> None:
    assert parse_bytes("--kv-cache-memory", text) == num_bytes


@pytest.mark.parametrize("text", ["", "much", "1.5GiB", "-1", "1GB", "4k"])
def test_refused(text: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_bytes("--kv-cache-memory", text)
    assert str(refused.value) == f"--kv-cache-memory {text}: must be a size such as 512MiB or 4GiB."
