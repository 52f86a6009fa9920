"""Bodies of OpenAI's API, parsed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.access import OPEN_ACCESS, Envelope
from jetway.runtime.gateway.openai.parse import HttpCall, parse_chat, parse_completion
from jetway.runtime.gateway.placement import Caller

ENVELOPE = Envelope(request_id="id", caller=Caller(), placer=OPEN_ACCESS.placer)
HELLO = [{"role": "user", "content": "hello"}]


def chat(**body: Any) -> HttpCall:
    return parse_chat(json.dumps({"messages": HELLO, **body}).encode(), ENVELOPE)


def completion(**body: Any) -> HttpCall:
    return parse_completion(json.dumps({"prompt": "hello", **body}).encode(), ENVELOPE)


def refusal(parse: Callable[..., HttpCall], **body: Any) -> tuple[str | None, str]:
    """The field that is refused, and the message."""
    with pytest.raises(InvalidArgument) as caught:
        parse(**body)
    return caught.value.param, caught.value.message
