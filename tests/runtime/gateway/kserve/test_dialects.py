"""What upstream's tensors mean to a call, and what an answer becomes."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, sampled, scored
from tests.support.triton import TRUE, inputs, text_inputs, texts, token_inputs


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def test_without_top_k_and_top_p_it_is_greedy_as_upstream(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    half, two = np.array([[0.5]], np.float32), np.array([[2]], np.int32)
    given: list[dict[str, Any]] = [{}, {"temperature": half}, {"top_p": half}, {"temperature": half, "top_k": two}]
    for each in given:
        await triton.infer("ensemble", text_inputs(**each))
    temperatures = [(await scheduler.adds.get()).sampling.temperature for _ in given]
    assert temperatures == [0, 0, 1, 0.5]


async def test_the_prompt_stands_before_the_answer_unless_told_as_upstream(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, " ho"))
    assert texts(await triton.infer("ensemble", text_inputs("hi"))) == ["hi ho"]
    assert texts(await triton.infer("ensemble", text_inputs("hi", exclude_input_in_output=TRUE))) == [" ho"]
    result = await triton.infer("tensorrt_llm", token_inputs([7, 8]))
    assert result.as_numpy("output_ids").tolist() == [[[7, 8, *ids(tokenizer, " ho")]]]
    assert result.as_numpy("sequence_length").tolist() == [[5]]


async def test_counts_and_log_probabilities_where_they_are_asked_for(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = ids(tokenizer, "ab")
    scores = [common_pb2.TokenLogprobs(logprob=-0.5), common_pb2.TokenLogprobs(logprob=-0.25)]
    scheduler.script = lambda add: [accepted(add.handle), scored(sampled(add.handle, tokens, LENGTH), scores)]
    asked: dict[str, Any] = {
        name: TRUE for name in ("return_log_probs", "return_num_input_tokens", "return_num_output_tokens")
    }

    result = await triton.infer("ensemble", text_inputs("hi", **asked))

    assert result.as_numpy("cum_log_probs").tolist() == [[-0.75]]
    assert result.as_numpy("output_log_probs").tolist() == [[[-0.5, -0.25]]]
    assert result.as_numpy("num_input_tokens").tolist() == [[3]]
    assert result.as_numpy("num_output_tokens").tolist() == [[2]]
    assert (await scheduler.adds.get()).sampling.logprobs == 0


async def test_end_id_is_the_one_token_that_ends_the_answer(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    for end_id in (5, -1):
        await triton.infer("ensemble", text_inputs(end_id=np.array([[end_id]], np.int32)))
    await triton.infer("ensemble", text_inputs())
    sampling = [(await scheduler.adds.get()).sampling for _ in range(3)]
    assert [(list(each.stop_token_ids), each.ignore_eos) for each in sampling] == [([5], True), ([], True), ([], False)]


async def test_stop_words_as_token_ids(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    """Two rows: the words' tokens, then their ends."""
    first, second = ids(tokenizer, "xy"), ids(tokenizer, "c")
    words = np.array([[[*first, *second], [2, 3, -1]]], np.int32)
    scheduler.script = answering(ids(tokenizer, "abcd"))

    result = await triton.infer("tensorrt_llm", token_inputs([7], stop_words_list=words, exclude_input_in_output=TRUE))

    assert result.as_numpy("output_ids").tolist() == [[ids(tokenizer, "abc")]]


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("ensemble", {"beam_width": np.array([[2]], np.int32)}, "input 'beam_width' of model 'ensemble' is not supported"),
        ("ensemble", {"bad_words": np.array([["x"]], dtype=object)}, "input 'bad_words' of model 'ensemble' is not"),
        ("ensemble", {"return_context_logits": TRUE}, "input 'return_context_logits' of model 'ensemble' is not"),
        ("ensemble", {"top_p": np.array([[2.0]], np.float32)}, "top_p must be in (0.0, 1.0], not 2.0"),
        ("tensorrt_llm", {"input_lengths": np.array([[3]], np.int32)}, "input_lengths must be in [1, 1], not 3"),
    ],
)  # fmt: skip
async def test_what_is_not_there_is_refused_by_name(
    triton: aio.InferenceServerClient, model: str, given: dict[str, Any], message: str
) -> None:
    own = text_inputs() if model == "ensemble" else [each for each in token_inputs([7]) if each.name() not in given]
    with pytest.raises(InferenceServerException) as caught:
        await triton.infer(model, own + inputs(**given), request_id="7")
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert caught.value.message().startswith(f"[request id: 7] {message}")


async def test_what_asks_for_nothing_is_taken(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    neutral = inputs(
        beam_width=np.array([[1]], np.int32), bad_words=np.array([[""]], dtype=object), pad_id=np.array([[2]], np.int32)
    )
    assert texts(await triton.infer("ensemble", text_inputs() + neutral)) == ["hia"]
