"""Words of strangers, made fit to be repeated: an answer, a log line or metadata must not grow with what clients send."""

import re

from jetway.runtime.errors import InvalidArgument

MAX_SHOWN_CHARS = 80
MAX_NAME_CHARS = 128
_PLAIN = re.compile(rf"[\x21-\x7e]{{1,{MAX_NAME_CHARS}}}")


def cut(text: str) -> str:
    """The text, where it is long with an ellipsis instead of its end."""
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def quoted(text: str) -> str:
    """The text in quotes, cut to a length that fits a message."""
    return cut(repr(text[: MAX_SHOWN_CHARS + 1]))


def is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None


def plain(name: str, param: str) -> str:
    """The name as it is. Raises InvalidArgument unless it may stand in headers and log lines."""
    if not is_plain(name):
        raise InvalidArgument(
            f"{param} must have 1 to {MAX_NAME_CHARS} visible ASCII characters; {quoted(name)} has {len(name)}",
            param=param,
        )
    return name
