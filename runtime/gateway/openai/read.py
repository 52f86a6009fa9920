"""Bytes to a request body: it is what it should be, or an InvalidArgument names the field, the limit and the value."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.words import cut, quoted

from .requests import Body

BodyT = TypeVar("BodyT", bound=Body)

MAX_PARTS = 1 << 16  # objects, lists and names of a body: some 50 ms, in which no other thread runs Python

# What is said of each kind of error; those that count entries, or find none, do not show the value.
_SENTENCES = {
    "missing": "{path} is missing",
    "type": "{path} must be {message}, not {value}",
    "bool_type": "{path} must be a boolean, not {value}",
    "int_type": "{path} must be an integer, not {value}",
    "float_type": "{path} must be a number, not {value}",
    "finite_number": "{path} must be a finite number, not {value}",
    "string_type": "{path} must be a string, not {value}",
    "string_unicode": "{path} must be text; {value} is not Unicode",
    "list_type": "{path} must be a list, not {value}",
    "dict_type": "{path} must be an object, not {value}",
    "model_type": "{path} must be an object, not {value}",
    "literal_error": "{path} must be {expected}, not {value}",
    "greater_than": "{path} must be above {gt}, not {value}",
    "greater_than_equal": "{path} must be at least {ge}, not {value}",
    "less_than_equal": "{path} must be at most {le}, not {value}",
    "string_too_short": "{path} must have {min_length} or more characters, not {value}",
    "string_too_long": "{path} may have at most {max_length} characters, not {num_entries}",
    "string_pattern_mismatch": "{path} must map token ids, not {value}",
    "too_short": "{path} must have {min_length} or more entries, not {num_entries}",
    "too_long": "{path} may have at most {max_length} entries, not {num_entries}",
}


def read_object(body: bytes) -> dict[str, Any]:
    """Raises InvalidArgument for anything but a JSON object in UTF-8, NaN, Infinity and a name that is there twice
    included, and for one of too many parts.
    """
    try:
        text = body.decode("utf-8-sig")
        _check_parts(text)
        values = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidArgument("the body is nested too deeply") from error
    except ValueError as error:  # of int()
        limit = sys.get_int_max_str_digits()
        raise InvalidArgument(f"a number in the body has more than {limit} digits, which is the limit") from error
    if not isinstance(values, dict):
        raise InvalidArgument(f"the body must be a JSON object, not {shown(values)}")
    return values


def read(model: type[BodyT], values: Mapping[str, Any]) -> BodyT:
    """Raises InvalidArgument."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _translated(error.errors(include_url=False)[0]) from error


def shown(value: object) -> str:
    """The value as JSON, cut to a length that fits a message."""
    try:
        return cut(json.dumps(value))
    except RecursionError:
        return "what is nested too deeply to show"


def _translated(error: ErrorDetails) -> InvalidArgument:
    """The first of the errors is enough for a message."""
    path = cut(_path(error["loc"]))
    value = error["input"]
    details: dict[str, Any] = {
        "path": path,
        "value": shown(value),
        "message": error["msg"],
        "num_entries": len(value) if isinstance(value, str | list | dict) else 0,
        **error.get("ctx", {}),
    }
    return InvalidArgument(_SENTENCES.get(error["type"], "{path}: {message}").format(**details), param=path)


def _path(location: tuple[int | str, ...]) -> str:
    """messages[0].content: without the tags of requests.py, and without "[key]", which stands after a key."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(("<", "[")):
            path += f".{step}" if path else step
    return path


def _check_parts(text: str) -> None:
    """Raise InvalidArgument before the work that they would make. What stands in strings is looked for only if it matters."""
    if _num_parts(text) <= MAX_PARTS:
        return
    without_escapes = text.replace(r"\\", "").replace(r"\"", "")
    without_strings = "".join(without_escapes.split('"')[::2])
    if (num_parts := _num_parts(without_strings)) > MAX_PARTS:
        raise InvalidArgument(f"the body may have at most {MAX_PARTS} objects, lists and names, not {num_parts}")


def _num_parts(text: str) -> int:
    return sum(map(text.count, "{[:"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two values for one name: what looked at the body before us, a proxy say, may have read the other one."""
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidArgument(f"the body has {quoted(twice)} twice in one object", param=cut(twice))
    return values


def _refuse_constant(constant: str) -> NoReturn:
    raise InvalidArgument(f"the body is not valid JSON: {constant} is not a JSON number")
