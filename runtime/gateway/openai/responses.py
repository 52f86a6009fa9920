"""The shapes of the answers that format.py and routes.py write as text: for docs/openapi.json, and held to it by tests."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

ServiceTier = Literal["priority", "default", "flex"]  # the one that is used, where the request names one


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PromptTokensDetails(Answer):
    cached_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(Answer):
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    content: list[TokenLogprob]
    refusal: None


class AssistantMessage(Answer):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Answer):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(Answer):
    id: str
    created: int
    model: str
    service_tier: ServiceTier = "default"
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class TextLogprobs(Answer):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Answer):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"]


class TextCompletion(Answer):
    id: str
    created: int
    model: str
    service_tier: ServiceTier = "default"
    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: Usage


class ChatDelta(BaseModel):
    """The first of a choice has the role, the last one nothing."""

    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChatChunkChoice(Answer):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class ChatChunk(Answer):
    """One event of a chat's stream; with stream_options.include_usage the last has the usage and no choices."""

    id: str
    created: int
    model: str
    service_tier: ServiceTier = "default"
    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


class TextChunkChoice(Answer):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class TextChunk(Answer):
    """One event of a completion's stream, as ChatChunk."""

    id: str
    created: int
    model: str
    service_tier: ServiceTier = "default"
    object: Literal["text_completion"]
    choices: list[TextChunkChoice]
    usage: Usage | None = None


class Model(Answer):
    """`max_model_len` is the longest sequence, prompt and output together."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Answer):
    object: Literal["list"]
    data: list[Model]


class Health(Answer):
    status: Literal["ok"]


class ErrorObject(Answer):
    message: str
    type: str
    param: str | None
    code: str


class Error(Answer):
    """Also the last event before [DONE] of a stream that fails."""

    error: ErrorObject
