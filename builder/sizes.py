"""Sizes as people write them."""

import re

from .errors import OptionError

UNIT_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_bytes(flag: str, text: str) -> int:
    """Bytes of "1GiB" or "4096". Raises OptionError that names `flag`."""
    match = re.fullmatch(r"(\d+) *([A-Za-z]*)", text)
    if match is None or match[2] not in UNIT_BYTES:
        raise OptionError(f"{flag} {text}: must be a size such as 512MiB or 4GiB.")
    return int(match[1]) * UNIT_BYTES[match[2]]
