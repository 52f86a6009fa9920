"""What upstream's tensors mean to a call, and what an answer becomes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from jetway.v1 import common_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, answering, sampled, scored
from tests.support.gateway import running_gateway
from tests.support.triton import TRUE, client_of, inputs, text_inputs, texts, token_inputs

NAN, INFINITE = np.array([[np.nan]], np.float32), np.array([[np.inf]], np.float32)


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
        ("ensemble", {"temperature": NAN}, "input 'temperature' must be finite, not nan"),
        ("ensemble", {"repetition_penalty": -INFINITE}, "input 'repetition_penalty' must be finite, not -inf"),
        ("ensemble", {"length_penalty": INFINITE}, "input 'length_penalty' must be finite, not inf"),
        ("ensemble", {"temperature": np.array([[101]], np.float32)}, "temperature must be in [0.0, 100.0], not 101.0"),
        ("ensemble", {"end_id": np.array([[-2]], np.int32)}, "end_id must be a token id, or -1 for none, not -2"),
        ("tensorrt_llm", {"runtime_top_p": NAN}, "input 'runtime_top_p' must be finite, not nan"),
        ("tensorrt_llm", {"stop_words_list": np.array([[[9999], [1]]], np.int32)}, "stop_words_list holds 9999, which is no token"),
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


@pytest.mark.parametrize(
    ("max_tokens", "message"),
    [(-1, "max_tokens must be at least 1, not -1"), (2, "min_tokens must be at most max_tokens, which is 2, not 3")],
)
async def test_of_two_lengths_the_wrong_one_is_named(
    triton: aio.InferenceServerClient, max_tokens: int, message: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        await triton.infer("ensemble", text_inputs(max_tokens=max_tokens, min_tokens=np.array([[3]], np.int32)))
    assert caught.value.message() == message


async def test_numbers_of_llmapi_are_finite_too(engine_dir: Path, scheduler: FakeScheduler) -> None:
    """Also those that an answer without sampling does not look at."""
    text = {"text_input": np.array([b"hi"], dtype=object), "sampling_param_top_p": np.array([0], np.float32)}
    async with (
        running_gateway(engine_dir, scheduler.address, kserve_dialect="llmapi") as gateway,
        client_of(gateway) as triton,
    ):
        for name, value in (("temperature", NAN), ("frequency_penalty", INFINITE)):
            with pytest.raises(InferenceServerException, match=f"input 'sampling_param_{name}' must be finite"):
                await triton.infer("tensorrt_llm", inputs(**text, **{f"sampling_param_{name}": value.reshape(1)}))
        with pytest.raises(InferenceServerException, match="temperature must be in"):
            await triton.infer("tensorrt_llm", inputs(**text, sampling_param_temperature=np.array([-1], np.float32)))


async def test_what_asks_for_nothing_is_taken(
    triton: aio.InferenceServerClient, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(ids(tokenizer, "a"))
    neutral = inputs(
        beam_width=np.array([[1]], np.int32), bad_words=np.array([[""]], dtype=object), pad_id=np.array([[2]], np.int32)
    )
    assert texts(await triton.infer("ensemble", text_inputs() + neutral)) == ["hia"]
