"""What the models of the chain `preprocessing`, `tensorrt_llm`, `postprocessing` have in common."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.answer import Delta
from jetway.runtime.gateway.call import sampling_params
from jetway.runtime.gateway.kserve.signature import Inputs, InputSpec, TensorSpec
from jetway.runtime.gateway.kserve.tensor import Tensor
from jetway.scheduler.request import SamplingParams

from .base import Asked

LOG_PROBS, INPUT_TOKENS, OUTPUT_TOKENS = "return_log_probs", "return_num_input_tokens", "return_num_output_tokens"
WITHOUT_PROMPT = "exclude_input_in_output"

_HONOURED = (
    *(InputSpec(name, "FP32") for name in (
        "temperature", "repetition_penalty", "presence_penalty", "frequency_penalty",
    )),
    *(InputSpec(name, "INT32") for name in ("min_tokens", "min_length", "num_return_sequences", "end_id")),
    *(InputSpec(name, "UINT64") for name in ("seed", "random_seed")),
    *(InputSpec(name, "BOOL") for name in (WITHOUT_PROMPT, LOG_PROBS, INPUT_TOKENS, OUTPUT_TOKENS)),
)  # fmt: skip
_WITHOUT_EFFECT = (InputSpec("pad_id", "INT32"),)  # nothing is padded
_ABSENT = (
    InputSpec("beam_width", "INT32", neutral=(1,)),
    *(InputSpec(name, "BOOL", neutral=(False,)) for name in (
        "return_context_logits", "return_generation_logits", "return_perf_metrics", "return_kv_cache_reuse_stats",
    )),
    InputSpec("lora_task_id", "UINT64", neutral=(0,)),
    InputSpec("lora_weights", "FP16", (-1, -1), neutral=()),
    InputSpec("lora_config", "INT32", (-1, 3), neutral=()),
    InputSpec("prompt_embedding_table", "FP16", (-1, -1), neutral=()),
    InputSpec("prompt_vocab_size", "INT32", neutral=(0,)),
    *(InputSpec(name, "BYTES", neutral=(b"",)) for name in ("guided_decoding_guide_type", "guided_decoding_guide")),
)  # fmt: skip
FIELDS: dict[str, tuple[str, ...]] = {
    "n": ("num_return_sequences",),
    "stop_token_ids": ("end_id",),
    "min_tokens": ("min_tokens", "min_length"),
    "logprobs": (LOG_PROBS,),
}
INPUTS = (*_HONOURED, *_WITHOUT_EFFECT, *_ABSENT)

OUTPUTS = (
    TensorSpec("cum_log_probs", "FP32", (-1,)),
    TensorSpec("output_log_probs", "FP32", (-1, -1)),
    *(TensorSpec(name, "INT32") for name in ("batch_index", "sequence_index", "num_input_tokens", "num_output_tokens")),
)


def sampling(inputs: Inputs, top_k: str, top_p: str) -> SamplingParams:
    """As TensorRT-LLM has it, greedy without a top_k or top_p, whatever the temperature that it allows. Raises
    InvalidArgument.
    """
    names = ("temperature", "repetition_penalty", "presence_penalty", "frequency_penalty")
    given: dict[str, Any] = {name: value for name in names if (value := inputs.first(name)) is not None}
    k, p = inputs.first(top_k), inputs.first(top_p)
    given |= {"top_k": k or 0, "top_p": p or 1.0}
    given["min_tokens"] = inputs.integer("min_tokens") or inputs.integer("min_length") or 0
    given["logprobs"] = 0 if inputs.flag(LOG_PROBS) else None
    params = sampling_params(given | _ends(inputs))
    return params if k or p else replace(params, temperature=0.0)


def seed(inputs: Inputs) -> int | None:
    """Under its name, or its older one."""
    given = inputs.integer("seed")
    return inputs.integer("random_seed") if given is None else given


def shows(inputs: Inputs) -> frozenset[str]:
    return frozenset(
        name for name in (LOG_PROBS, INPUT_TOKENS, OUTPUT_TOKENS, WITHOUT_PROMPT) if inputs.flag(name)
    )  # fmt: skip


def _ends(inputs: Inputs) -> dict[str, Any]:
    """`end_id` is the one token that ends the answer; -1: none. Absent: the model's own. Raises InvalidArgument."""
    end_id = inputs.integer("end_id")
    if end_id is None:
        return {"stop_token_ids": ()}
    if end_id < -1:
        raise InvalidArgument(f"end_id must be a token id, or -1 for none, not {end_id}", param="end_id")
    return {"stop_token_ids": (end_id,) if end_id >= 0 else (), "ignore_eos": True}


class ChainWriter:
    """The outputs beside the answer itself. Streamed answers never hold the prompt; whole ones do unless told."""

    def __init__(self, asked: Asked, num_prompt_tokens: int) -> None:
        self.shows_prompt = not asked.stream and WITHOUT_PROMPT not in asked.shows
        self._shows = asked.shows
        self._num_prompt_tokens = num_prompt_tokens
        self._sums: dict[int, float] = defaultdict(float)  # log-probabilities by choice

    def beside(self, delta: Delta) -> list[Tensor]:
        num_tokens = len(delta.piece.token_ids)
        tensors = [_index("batch_index", 0), _index("sequence_index", delta.choice)]
        if LOG_PROBS in self._shows:
            logprobs = [each.scores.logprob for each in delta.piece.scored]
            self._sums[delta.choice] += sum(logprobs)
            tensors.append(Tensor("cum_log_probs", "FP32", (1, 1), [self._sums[delta.choice]]))
            tensors.append(Tensor("output_log_probs", "FP32", (1, 1, len(logprobs)), logprobs))
        if INPUT_TOKENS in self._shows:
            tensors.append(_index("num_input_tokens", self._num_prompt_tokens))
        if OUTPUT_TOKENS in self._shows:
            tensors.append(_index("num_output_tokens", num_tokens))
        return tensors


def _index(name: str, value: int) -> Tensor:
    return Tensor(name, "INT32", (1, 1), [value])
