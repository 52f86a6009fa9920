"""One greedy request through every edge: the scheduler is asked the same, and the tokens come back the same."""

from typing import Any

import openai
from tokenizers import Tokenizer
from tritonclient.grpc import aio

from jetway.runtime.gateway.app import Gateway
from jetway.v1 import common_pb2, inference_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, sampled
from tests.support.triton import TRUE, generate, parsed, text_inputs, texts, token_inputs

PROMPT, MAX_TOKENS = "the same?", 6


def continued(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
    """Tokens that only the prompt decides."""
    tokens = [33 + sum(add.prompt) * step % 90 for step in range(1, add.max_tokens + 1)]
    return [accepted(add.handle), sampled(add.handle, tokens[:2]), sampled(add.handle, tokens[2:], LENGTH)]


async def test_every_edge_asks_and_answers_the_same(
    gateway: Gateway,
    scheduler: FakeScheduler,
    tokenizer: Tokenizer,
    client: openai.AsyncOpenAI,
    stub: Any,
    triton: aio.InferenceServerClient,
) -> None:
    scheduler.script = continued
    prompt = tokenizer.encode(PROMPT).ids

    own = await stub.Generate(
        inference_pb2.GenerateRequest(
            text=PROMPT, max_tokens=MAX_TOKENS, sampling=common_pb2.SamplingParams(temperature=0)
        )
    )
    [choice] = own.choices
    completion = await client.completions.create(model="tiny", prompt=PROMPT, max_tokens=MAX_TOKENS, temperature=0)
    whole = text_inputs(PROMPT, MAX_TOKENS, exclude_input_in_output=TRUE)
    text = await triton.infer("ensemble", whole)
    ids = await triton.infer("tensorrt_llm", token_inputs(prompt, MAX_TOKENS, exclude_input_in_output=TRUE))
    body = {"text_input": PROMPT, "max_tokens": MAX_TOKENS, "exclude_input_in_output": True}
    answer = await generate(gateway, "tiny/generate", body)

    assert ids.as_numpy("output_ids").tolist() == [[list(choice.token_ids)]]
    assert {completion.choices[0].text, *texts(text), parsed(answer)["text_output"]} == {choice.text}
    adds = [await scheduler.adds.get() for _ in range(5)]
    for add in adds:
        assert (list(add.prompt), add.max_tokens, add.n, add.sampling.temperature) == (prompt, MAX_TOKENS, 1, 0)
        assert (add.service_class, add.tenant, add.priority) == ("standard", "", 0)
