"""What a client asks: validated once, here; a `Request` that exists is valid. Nothing in it ever changes."""

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass

MAX_SEQUENCES = 128
MAX_LOGPROBS = 20
MAX_STOP_TOKENS = 128
MAX_LOGIT_BIAS = 1024


class InvalidRequest(ValueError):
    """The request is wrong as it stands. `param` is the field's public name; the message names limit and value."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class SequenceId:
    """One generated continuation: the request and which of its n."""

    request_id: str
    index: int

    def __str__(self) -> str:
        return f"{self.request_id}/{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen; names, ranges and defaults are those of `jetway.v1.SamplingParams`.

    Raises InvalidRequest for a value out of range. `seed` keys the noise: (seed, sequence index, position, token id).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, 0.0, 100.0)
        _check_range("top_k", self.top_k, 0, 2**31 - 1)
        _check_range("top_p", self.top_p, 0.0, 1.0, open_below=True)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        # To six digits: the protocols carry a float32, whose 0.01 is below 0.01. Smaller ones make logits infinite.
        _check_range("repetition_penalty", float(f"{self.repetition_penalty:.6g}"), 0.01, 100.0)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        for _, bias in self.logit_bias:
            _check_range("logit_bias", bias, -100.0, 100.0)
        if self.logprobs is not None:
            _check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _check_range("min_tokens", self.min_tokens, 0, 2**31 - 1)
        _check_range("seed", self.seed, 0, 2**64 - 1)
        _check_count("stop_token_ids", len(self.stop_token_ids), MAX_STOP_TOKENS)
        _check_count("logit_bias", len(self.logit_bias), MAX_LOGIT_BIAS)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt and what to do with it. `prompt` is token ids; `max_tokens` None means as long as the engine allows.

    `priority` orders a tenant's own requests of one class, lower first, before arrival. `deadline_s` counts from
    arrival to the end; None: the class's. `queue_timeout_s` bounds the wait for the first start; it may only shorten the
    class's.

    Raises InvalidRequest. What depends on the engine (length, vocabulary, pool) is checked by `Scheduler.add`.
    """

    id: str
    prompt: Items[int]
    sampling: SamplingParams
    max_tokens: int | None = None
    n: int = 1
    service_class: str = "standard"
    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    queue_timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise InvalidRequest("prompt", "the prompt is empty; at least 1 token is needed")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequest("max_tokens", f"max_tokens must be at least 1, not {self.max_tokens}")
        min_tokens = self.sampling.min_tokens
        if self.max_tokens is not None and min_tokens > self.max_tokens:
            raise InvalidRequest(
                "min_tokens", f"min_tokens must be at most max_tokens, which is {self.max_tokens}, not {min_tokens}"
            )
        _check_range("n", self.n, 1, MAX_SEQUENCES)
        _check_range("priority", self.priority, -(2**63), 2**63 - 1)
        for name in ("deadline_s", "queue_timeout_s"):
            if (duration_s := getattr(self, name)) is not None and not duration_s > 0:
                raise InvalidRequest(name, f"{name} must be above 0, not {duration_s}")

    @property
    def sequence_ids(self) -> list[SequenceId]:
        return [SequenceId(self.id, index) for index in range(self.n)]


def _check_range(param: str, value: float, low: float, high: float, *, open_below: bool = False) -> None:
    """Raise InvalidRequest unless low <= value <= high (low < value with `open_below`); NaN fits no range."""
    if math.isnan(value) or value < low or value > high or (open_below and value == low):
        bracket = "(" if open_below else "["
        raise InvalidRequest(param, f"{param} must be in {bracket}{low}, {high}], not {value}")


def _check_count(param: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidRequest(param, f"{param} may hold at most {limit} entries, not {count}")
