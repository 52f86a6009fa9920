"""`tensorrt_llm` as llmapi has it: text in; each response of a stream holds the text from its beginning."""

from dataclasses import replace
from typing import Any

from jetway.runtime.gateway.answer import Delta
from jetway.runtime.gateway.call import sampling_params
from jetway.runtime.gateway.kserve.signature import Inputs, InputSpec, TensorSpec
from jetway.runtime.gateway.kserve.tensor import Tensor
from jetway.scheduler.request import SamplingParams
from jetway.v1 import common_pb2

from .base import STOP_INPUT, Asked

MAX_TOKENS = 32  # what TensorRT-LLM's LLM API takes where the client says nothing
_PREFIX = "sampling_param_"
_WITHOUT_PROMPT = f"{_PREFIX}exclude_input_from_output"
_FINISH_REASON, _LOG_PROB = "return_finish_reason", "return_cumulative_logprob"
_REASONS = {
    common_pb2.FINISH_REASON_STOP: b"stop",
    common_pb2.FINISH_REASON_LENGTH: b"length",
    common_pb2.FINISH_REASON_CANCELLED: b"cancelled",
}
_SAMPLING = ("temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty")
_ABSENT = (
    InputSpec("image_url", "BYTES", (-1,), neutral=(b"",)),
    InputSpec(f"{_PREFIX}best_of", "INT32", neutral=(1,)),
    InputSpec(f"{_PREFIX}return_perf_metrics", "BOOL", neutral=(False,)),
    InputSpec("return_stop_reason", "BOOL", neutral=(False,)),
    InputSpec("lora_id", "INT32", neutral=(0,)),
    *(InputSpec(f"lora_{name}", "BYTES", neutral=(b"",)) for name in ("name", "path", "ckpt_source")),
)


class LlmapiDialect:
    inputs = (
        InputSpec("text_input", "BYTES", (-1,), required=True),
        InputSpec("streaming", "BOOL"),
        *(InputSpec(_PREFIX + name, "FP32") for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty")),
        *(InputSpec(_PREFIX + name, "INT32") for name in ("top_k", "max_tokens")),
        InputSpec(f"{_PREFIX}seed", "UINT64"),
        InputSpec(f"{_PREFIX}stop", "BYTES", (-1,)),
        InputSpec(_WITHOUT_PROMPT, "BOOL"),
        InputSpec(_FINISH_REASON, "BOOL"),
        InputSpec(_LOG_PROB, "BOOL"),
        InputSpec(STOP_INPUT, "BOOL"),
        *_ABSENT,
    )  # fmt: skip
    outputs = (
        TensorSpec("text_output", "BYTES", (-1,)),
        TensorSpec("finish_reason", "BYTES", (-1,)),
        TensorSpec("cumulative_logprob", "FP32", (-1,)),
    )
    fields = {name: (_PREFIX + name,) for name in (*_SAMPLING, "max_tokens", "stop")} | {"logprobs": (_LOG_PROB,)}
    batched = False
    acknowledges_stop = False

    def parse(self, inputs: Inputs) -> Asked:
        """Of several texts only the first is read, as there."""
        texts = inputs.texts("text_input")
        max_tokens = inputs.integer(f"{_PREFIX}max_tokens")
        return Asked(
            prompt=texts[0] if texts else "",
            sampling=_sampling(inputs),
            seed=inputs.integer(f"{_PREFIX}seed"),
            max_tokens=MAX_TOKENS if max_tokens is None else max_tokens,
            stop=tuple(word for word in inputs.texts(f"{_PREFIX}stop") if word),
            stream=inputs.flag("streaming"),
            shows=frozenset(name for name in (_WITHOUT_PROMPT, _FINISH_REASON, _LOG_PROB) if inputs.flag(name)),
        )

    def writer(self, asked: Asked, num_prompt_tokens: int) -> "LlmapiWriter":
        return LlmapiWriter(asked)


class LlmapiWriter:
    def __init__(self, asked: Asked) -> None:
        self._shows = asked.shows
        shows_prompt = not asked.stream and _WITHOUT_PROMPT not in asked.shows
        self._text = str(asked.prompt) if shows_prompt else ""
        self._logprob = 0.0

    def says(self, delta: Delta) -> bool:
        return bool(delta.piece.text) or (delta.ending is not None and _FINISH_REASON in self._shows)

    def outputs(self, delta: Delta) -> list[Tensor]:
        self._text += delta.piece.text
        self._logprob += sum(each.scores.logprob for each in delta.piece.scored)
        tensors = [_text("text_output", self._text.encode())]
        if _FINISH_REASON in self._shows:
            tensors.append(
                _text("finish_reason", b"" if delta.ending is None else _REASONS[delta.ending.finish_reason])
            )
        if _LOG_PROB in self._shows:
            tensors.append(Tensor("cumulative_logprob", "FP32", (1,), [self._logprob]))
        return tensors


def _text(name: str, text: bytes) -> Tensor:
    return Tensor(name, "BYTES", (1,), [text])


def _sampling(inputs: Inputs) -> SamplingParams:
    """Greedy where nothing is said, as there."""
    given: dict[str, Any] = {name: value for name in _SAMPLING if (value := inputs.first(_PREFIX + name)) is not None}
    greedy = not given.keys() & {"temperature", "top_k", "top_p"} or given.get("top_p") == 0
    if greedy:
        given["top_p"] = 1.0
    params = sampling_params(given | {"logprobs": 0 if inputs.flag(_LOG_PROB) else None})
    return replace(params, temperature=0.0) if greedy else params
