"""One call of a client, in words of text, the same from every protocol: what exists is valid."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jetway.runtime.config import MAX_STOP_CHARS, MAX_STOP_STRINGS
from jetway.runtime.errors import InvalidArgument
from jetway.scheduler.request import MAX_SEQUENCES, InvalidRequest, SamplingParams

from .placement import DEFAULT_PLACEMENT, Placement
from .words import quoted

MAX_CHOICES = MAX_SEQUENCES  # of one call, over all of its prompts
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Message(NamedTuple):
    role: str  # "system", "user" or "assistant"
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation, for the model's chat template. Raises InvalidArgument when it is empty."""

    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidArgument("messages is empty; at least 1 message is needed", param="messages")


Prompt = str | tuple[int, ...] | Chat  # text as it stands, token ids as they are, or a conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Choices are numbered prompt by prompt, n of each.

    Raises InvalidArgument for bad stop strings or too many choices. What `Request` checks, and what depends on the model,
    is checked when the call starts.
    """

    request_id: str
    model: str | None  # None: the only model
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    seed: int | None = None  # of every prompt's sampling; None: drawn for each
    n: int = 1
    max_tokens: int | None = None  # of each choice; None: as long as the engine allows
    stop: tuple[str, ...] = ()
    tenant: str = ""
    placement: Placement = DEFAULT_PLACEMENT
    deadline_s: float | None = None  # from arrival to the end; None: the class's
    queue_timeout_s: float | None = None  # until the first start, where shorter than the class's

    def __post_init__(self) -> None:
        num_prompts = len(self.prompts)
        if self.n < 1 or not 1 <= self.n * num_prompts <= MAX_CHOICES:
            others, times = ("", "") if num_prompts == 1 else (" times the number of prompts", f" x {num_prompts}")
            raise InvalidArgument(f"n{others} must be in [1, {MAX_CHOICES}], not {self.n}{times}", param="n")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidArgument(
                f"stop may hold at most {MAX_STOP_STRINGS} strings, not {len(self.stop)}", param="stop"
            )
        for stop in self.stop:
            if not 1 <= len(stop) <= MAX_STOP_CHARS:
                raise InvalidArgument(
                    f"a stop string must have 1 to {MAX_STOP_CHARS} characters, not {len(stop)}", param="stop"
                )


def message(role: str, content: str, param: str) -> Message:
    """`param` names the message in errors. Raises InvalidArgument for a role that chat templates do not know."""
    if role not in _ROLES:
        raise InvalidArgument(
            f"{param}.role must be one of {', '.join(_ROLES)}, not {quoted(role)}", param=f"{param}.role"
        )
    return Message(_ROLES[role], content)


def sampling_params(given: Mapping[str, Any]) -> SamplingParams:
    """The fields that a client gave, by their names. Raises InvalidArgument."""
    try:
        return SamplingParams(**given)
    except InvalidRequest as error:
        raise InvalidArgument(str(error), param=error.param) from error
