"""The bodies that clients send: every field that is honoured, with its range. All other fields: unsupported.py.

The parser reads these, and docs/openapi.json and docs/openai.md are made from them.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticKnownError

from jetway.runtime.config import MAX_STOP_CHARS, MAX_STOP_STRINGS
from jetway.runtime.gateway.call import MAX_CHOICES
from jetway.runtime.gateway.placement import TIERS
from jetway.scheduler.request import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_STOP_TOKENS

_MAX_INT = 2**31 - 1
_MAX_SEED = 2**64 - 1


def _unicode(text: str) -> str:
    """Refuse half a surrogate pair, which JSON can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PydanticKnownError("string_unicode") from error
    return text


Text = Annotated[str, AfterValidator(_unicode)]
TokenId = Annotated[int, Field(ge=0, le=_MAX_INT)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
LogitBias = dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]]


# Lists of any length fail fast: the first error is told, and making a million takes half a minute.
#
# Where a field takes several JSON types, a value is read as the one that it looks like, so that an error is about that
# one. Tags stand in < >: read.py leaves them out of a field's path.


def _looks(value: object) -> str | None:
    match value:
        case str():
            return "<text>"
        case list():
            return "<list>"
    return None


def _looks_like_prompt(value: object) -> str | None:
    """A list is read as its first entry looks."""
    match value:
        case [str(), *_]:
            return "<texts>"
        case [list(), *_]:
            return "<lists>"
    return _looks(value)


Stop = Annotated[
    Annotated[StopString, Tag("<text>")]
    | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS), Tag("<list>")],
    Discriminator(_looks, custom_error_type="type", custom_error_message="a string or a list of strings"),
]
TokenIds = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
Prompts = Annotated[
    Annotated[Text, Tag("<text>")]
    | Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES), Tag("<texts>")]
    | Annotated[TokenIds, Tag("<list>")]
    | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_CHOICES), Tag("<lists>")],
    Discriminator(
        _looks_like_prompt,
        custom_error_type="type",
        custom_error_message="a string, a list of token ids, or a list of either",
    ),
]


class Body(BaseModel):
    """A value is what it should be: nothing is converted. Null is like an absent field."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


class TextPart(Body):
    type: Literal["text"]
    text: Text


class MessageBody(Body):
    role: Literal["system", "developer", "user", "assistant"] = Field(description="developer is read as system")
    content: Annotated[
        Annotated[Text, Tag("<text>")] | Annotated[list[TextPart], Field(fail_fast=True), Tag("<list>")],
        Discriminator(_looks, custom_error_type="type", custom_error_message="a string or a list of text parts"),
    ] = Field(description="text, or parts of text, which become lines")
    tool_calls: list[Any] | None = Field(None, max_length=0)  # not supported, like the next
    function_call: dict[str, Any] | None = Field(None, max_length=0)


class StreamOptions(Body):
    include_usage: bool | None = Field(None, description="a last event with the usage and no choices")


class CallBody(Body):
    """What both endpoints take."""

    model: Text | None = Field(None, description="the served name; absent: the only model")
    n: int | None = Field(
        None, ge=1, le=MAX_CHOICES, description=f"choices of each prompt, 1 if absent; at most {MAX_CHOICES} in all"
    )
    stream: bool | None = Field(None, description="the answer as it is generated, as server-sent events")
    stream_options: StreamOptions | None = Field(None, description="with stream: true only")
    stop: Stop | None = Field(None, description="the text ends before the first of these")
    seed: int | None = Field(None, ge=0, le=_MAX_SEED, description="the same seed and prompt give the same tokens")
    temperature: float | None = Field(None, ge=0, le=100, description="0 is greedy; 1 if absent")
    top_p: float | None = Field(None, gt=0, le=1, description="the smallest set whose probability reaches it")
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="once for each token already generated")
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="per occurrence of a generated token")
    logit_bias: LogitBias | None = Field(
        None, max_length=MAX_LOGIT_BIAS, description="token ids, as strings, to what is added to their logits"
    )
    top_k: int | None = Field(None, ge=-1, le=_MAX_INT, description="the k most probable tokens; 0 or -1: all")
    min_p: float | None = Field(None, ge=0, le=1, description="tokens of at least min_p times the best probability")
    repetition_penalty: float | None = Field(
        None, ge=0.01, le=100, description="divides or multiplies the logits of tokens seen in prompt or answer"
    )
    min_tokens: int | None = Field(None, ge=0, le=_MAX_INT, description="no end and no stop token before so many")
    stop_token_ids: list[TokenId] | None = Field(
        None, max_length=MAX_STOP_TOKENS, description="each ends the answer, and has no text"
    )
    priority: float | None = Field(
        None, description="in the server's dialect: vLLM's, lower first, or TensorRT-LLM's, higher first"
    )
    service_tier: Text | None = Field(None, description=f"{', '.join(TIERS)}; the answer says which was used")
    ignore_eos: bool | None = Field(None, description="the model's end tokens do not end the answer")


class ChatBody(CallBody):
    messages: list[MessageBody] = Field(
        min_length=1, fail_fast=True, description="the conversation, for the model's chat template"
    )
    max_completion_tokens: int | None = Field(
        None, ge=1, le=_MAX_INT, description="of each choice; absent: as long as the engine allows"
    )
    max_tokens: int | None = Field(None, ge=1, le=_MAX_INT, description="older name of max_completion_tokens")
    logprobs: bool | None = Field(None, description="log-probabilities of the tokens")
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_LOGPROBS, description="best alternatives of each token; with logprobs: true only"
    )


class CompletionBody(CallBody):
    prompt: Prompts = Field(description="text, or token ids as they are; or a list of prompts")
    max_tokens: int | None = Field(None, ge=1, le=_MAX_INT, description="of each choice; 16 if absent")
    logprobs: int | None = Field(
        None, ge=0, le=MAX_LOGPROBS, description="log-probabilities of the tokens and of so many best alternatives"
    )
