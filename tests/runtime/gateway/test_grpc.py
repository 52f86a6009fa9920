"""jetway.v1.Inference over a plain gRPC channel: answers, statuses, cancellation, health and reflection."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tokenizers import Tokenizer

from jetway.v1 import common_pb2, inference_pb2, scheduler_pb2
from tests.support.fake_scheduler import (
    ENGINE,
    LENGTH,
    STOP,
    FakeScheduler,
    accepted,
    answering,
    cached,
    sampled,
    scored,
)
from tests.support.tokenizers import EOS, ids_of

TEXT = inference_pb2.GenerateRequest(text="hi")


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


async def test_generate_from_text(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = [*ids(tokenizer, "삼"), *ids_of(tokenizer, EOS)]
    scheduler.script = answering(tokens, reason=STOP)
    request = inference_pb2.GenerateRequest(
        model="tiny",
        text="hi",
        max_tokens=9,
        request_id="mine",
        sampling=common_pb2.SamplingParams(
            temperature=0.5, top_k=3, logit_bias_tokens=[4], logit_bias_values=[-2], stop_token_ids=[6], seed=8
        ),
    )

    response = await stub.Generate(request)

    assert response == inference_pb2.GenerateResponse(
        request_id="mine",
        model="tiny",
        choices=[inference_pb2.Choice(index=0, text="삼", token_ids=tokens, finish_reason=STOP)],
        usage=inference_pb2.Usage(prompt_tokens=3, completion_tokens=4),
    )
    add = await scheduler.adds.get()
    assert (list(add.prompt), add.max_tokens, add.request_id) == (tokenizer.encode("hi").ids, 9, "mine")
    sampling = add.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.5, 3, 1, 8)
    assert (list(sampling.logit_bias_tokens), list(sampling.logit_bias_values)) == ([4], [-2])
    assert list(sampling.stop_token_ids) == [6]


async def test_generate_from_chat_and_from_token_ids(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(ids(tokenizer, "a"), reason=LENGTH)
    message = inference_pb2.ChatMessage(role="user", content="hello")
    chat = inference_pb2.ChatMessages(messages=[message])

    await stub.Generate(inference_pb2.GenerateRequest(chat=chat))
    await stub.Generate(inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds(ids=[7, 8])))

    prompt = "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    first, second = await scheduler.adds.get(), await scheduler.adds.get()
    assert list(first.prompt) == ids(tokenizer, prompt)
    assert list(second.prompt) == [7, 8]
    assert not second.HasField("max_tokens")
    assert first.sampling.seed != second.sampling.seed
    assert first.request_id != second.request_id


async def test_stream_says_text_and_tokens_and_ends_with_the_usage(
    stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = ids(tokenizer, "ďá")
    call = stub.GenerateStream(inference_pb2.GenerateRequest(text="hi", request_id="mine"))
    handle = (await scheduler.adds.get()).handle
    scheduler.send(accepted(handle))

    deltas = []
    for number, token in enumerate(tokens, start=1):
        scheduler.send(sampled(handle, [token], LENGTH if number == len(tokens) else None))
        deltas.append(await call.read())

    assert deltas == [
        inference_pb2.GenerateDelta(request_id="mine", text="", token_ids=tokens[:1]),
        inference_pb2.GenerateDelta(request_id="mine", text="ď", token_ids=tokens[1:2]),
        inference_pb2.GenerateDelta(request_id="mine", text="", token_ids=tokens[2:3]),
        inference_pb2.GenerateDelta(
            request_id="mine",
            text="á",
            token_ids=tokens[3:],
            finish_reason=LENGTH,
            usage=inference_pb2.Usage(prompt_tokens=3, completion_tokens=4),
        ),
    ]
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_choices_have_their_own_texts_and_ends(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = [ids(tokenizer, text) for text in ("one", "two!")]

    def script(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
        ends = [sampled(add.handle, each, LENGTH, index=index) for index, each in enumerate(tokens)]
        return [accepted(add.handle), *(cached(end, 2) for end in ends)]

    scheduler.script = script
    request = inference_pb2.GenerateRequest(text="hi", n=2, stop=["!"])
    usage = inference_pb2.Usage(prompt_tokens=3, completion_tokens=7, cached_tokens=2)

    response = await stub.Generate(request)
    deltas = [delta async for delta in stub.GenerateStream(request)]

    assert list(response.choices) == [
        inference_pb2.Choice(index=0, text="one", token_ids=tokens[0], finish_reason=LENGTH),
        inference_pb2.Choice(index=1, text="two", token_ids=tokens[1], finish_reason=STOP),
    ]
    assert response.usage == usage
    for choice in response.choices:
        mine = [delta for delta in deltas if delta.index == choice.index]
        assert "".join(delta.text for delta in mine) == choice.text
        assert [token for delta in mine for token in delta.token_ids] == choice.token_ids
        assert [delta.finish_reason for delta in mine if delta.finish_reason] == [choice.finish_reason]
    assert [delta.HasField("usage") for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].usage == usage
    assert (await scheduler.adds.get()).n == 2


async def test_log_probabilities_are_parallel_to_the_tokens(
    stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    tokens = ids(tokenizer, "ab")
    scores = [common_pb2.TokenLogprobs(logprob=-0.5 * token, top_tokens=[token], top_logprobs=[-1]) for token in tokens]
    scheduler.script = lambda add: [accepted(add.handle), scored(sampled(add.handle, tokens, LENGTH), scores)]
    request = inference_pb2.GenerateRequest(text="hi", sampling=common_pb2.SamplingParams(logprobs=1))

    [choice] = (await stub.Generate(request)).choices
    deltas = [delta async for delta in stub.GenerateStream(request)]

    assert list(choice.logprobs) == scores
    assert [each for delta in deltas for each in delta.logprobs] == scores
    assert (await scheduler.adds.get()).sampling.logprobs == 1


async def test_stop_string_ends_the_stream(stub: Any, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    tokens = ids(tokenizer, "one END two")
    scheduler.script = lambda add: [accepted(add.handle), sampled(add.handle, tokens)]

    deltas = [delta async for delta in stub.GenerateStream(inference_pb2.GenerateRequest(text="hi", stop=["END"]))]

    assert "".join(delta.text for delta in deltas) == "one "
    assert deltas[-1].finish_reason == STOP
    assert deltas[-1].usage.completion_tokens == len("one END")
    assert (await scheduler.finishes.get()).kept_tokens == len("one END")


async def test_models(stub: Any) -> None:
    response = await stub.ListModels(inference_pb2.ListModelsRequest())

    assert response == inference_pb2.ListModelsResponse(models=[inference_pb2.Model(id="tiny", engine=ENGINE)])


async def test_health_follows_the_scheduler(channel: grpc.aio.Channel, scheduler: FakeScheduler) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="jetway.v1.Inference"))
    status = health_pb2.HealthCheckResponse

    async def wait_for(expected: int) -> None:
        while (await watch.read()).status != expected:
            pass

    await wait_for(status.SERVING)
    scheduler.send(scheduler_pb2.SessionFrame(is_ready=False))
    await wait_for(status.NOT_SERVING)
    scheduler.send(scheduler_pb2.SessionFrame(is_ready=True))
    await wait_for(status.SERVING)
    scheduler.end_session()
    await wait_for(status.NOT_SERVING)
    assert (await stub.Check(health_pb2.HealthCheckRequest())).status == status.SERVING  # the gateway lives
    await wait_for(status.SERVING)
    watch.cancel()


async def test_reflection_names_the_services(channel: Any) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))

    services = [service.name for service in (await call.read()).list_services_response.service]
    assert set(services) > {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "jetway.v1.Inference"}
